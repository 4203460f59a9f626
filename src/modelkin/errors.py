"""Every way modelkin can fail, as one tree; the exit code of the command line is on the class.

ModelkinError                      1
├── UsageError                     2   the request itself makes no sense
├── AccessError                    3   not found, gated, or unreachable
│   ├── NotFound                       no such repository, revision, folder or file
│   ├── Gated                          exists, but needs a token or an accepted licence
│   ├── Unreachable                    the network or the server failed, also after retries
│   └── OfflineMiss                    needed from the network while offline
├── UnreadableError                4   a file or an answer that cannot be trusted
│   ├── HeaderLies                     a header contradicts itself or its file
│   ├── UnsafePickle                   a pickle asks for something that is not a plain tensor
│   ├── UnsupportedFormat              a real format that is not read here
│   ├── PackedTensor                   quantised or packed values; never read as plain numbers
│   └── ServerLies                     an answer that does not match what was asked
└── NothingComparable              5   readable, but nothing that a comparison could use
"""


class ModelkinError(Exception):
    """What was expected, what was found, where, and what to try (`hint`)."""

    exit_code = 1

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.message}"


class UsageError(ModelkinError):
    exit_code = 2


class AccessError(ModelkinError):
    exit_code = 3


class NotFound(AccessError):
    pass


class Gated(AccessError):
    pass


class Unreachable(AccessError):
    pass


class OfflineMiss(AccessError):
    pass


class UnreadableError(ModelkinError):
    exit_code = 4


class HeaderLies(UnreadableError):
    pass


class UnsafePickle(UnreadableError):
    pass


class UnsupportedFormat(UnreadableError):
    pass


class PackedTensor(UnreadableError):
    pass


class ServerLies(UnreadableError):
    pass


class NothingComparable(ModelkinError):
    exit_code = 5
