"""The command line as scripts see it: standard output, standard error, exit codes, environment."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from safetensors.numpy import save

from builders import CONFIG, llama_files, llama_tensors, write_files
from modelkin.demo import TRUTH, bundled, faults, truth
from modelkin.demo.hub import LoopbackHub, Repository

FILES = llama_files(shards=2)


def modelkin(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "modelkin", *arguments]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )


def test_inspect_of_a_folder_prints_a_page_and_nothing_on_standard_error(tmp_path: Path) -> None:
    done = modelkin("inspect", str(write_files(tmp_path / "m", FILES)))
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("family", "llama", "Anatomy", "Norm gains", "input_norm", "Not mapped (0)", "read "):
        assert word in done.stdout


def test_json_on_standard_output_is_only_json(tmp_path: Path) -> None:
    done = modelkin("inspect", str(write_files(tmp_path / "m", FILES)), "--json", "-")
    record = json.loads(done.stdout)
    assert record["schema"] == "modelkin.inspection/1"
    assert record["model"]["parameters"] == sum(tensor.size for tensor in llama_tensors().values())
    assert record["cost"]["requests"] == 0


def test_out_writes_every_form(tmp_path: Path) -> None:
    done = modelkin("inspect", str(write_files(tmp_path / "m", FILES)), "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "inspection.json", "inspection.txt", "gains.csv", "anatomy.csv", "files.csv", "left_out.csv",
    }  # fmt: skip


def test_a_bare_weights_file_is_inspected(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(save(llama_tensors()))
    done = modelkin("inspect", str(path), "--json", "-")
    record = json.loads(done.stdout)
    assert record["family"] == "llama"
    assert record["unmapped"] == []


def test_a_torch_file_is_inspected_without_running_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(array.astype("float32")) for name, array in llama_tensors().items()}
    torch.save(tensors, tmp_path / "model.bin")
    done = modelkin("inspect", str(tmp_path / "model.bin"), "--json", "-")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["gains"]) == 7


def test_inspect_over_http_with_the_environment_of_the_hub(tmp_path: Path) -> None:
    with LoopbackHub({"acme/tiny": Repository(FILES, private=True)}, token="hf_right") as hub:
        environment = {"HF_ENDPOINT": hub.endpoint, "MODELKIN_CACHE": str(tmp_path), "HF_TOKEN": "hf_right"}
        first = modelkin("inspect", "acme/tiny", "--json", "-", **environment)
        assert first.returncode == 0, first.stderr
        record = json.loads(first.stdout)
        assert record["model"]["revision"] == hub.repositories["acme/tiny"].refs["main"]
        assert record["cost"]["requests"] > 3
        listed = modelkin("cache", "list", **environment)
        assert "acme/tiny@" in listed.stdout
    again = modelkin("inspect", "hf://acme/tiny", "--json", "-", "--offline", **environment)
    assert json.loads(again.stdout)["gains"] == record["gains"]
    switched_off = modelkin("inspect", "acme/tiny", "--json", "-", HF_HUB_OFFLINE="1", **environment)
    assert json.loads(switched_off.stdout)["cost"]["requests"] == 0
    assert modelkin("cache", "clear", **environment).returncode == 0
    assert modelkin("inspect", "acme/tiny", "--offline", **environment).returncode == 3


EXITS = {
    "a name that is no name": (["inspect", "what is this"], 2),
    "an unknown option": (["inspect", "--colour"], 2),
    "too many connections": (["inspect", "x", "--connections", "64"], 2),
    "a name too long": (["inspect", "a" * 5000], 2),
    "a path too long": (["inspect", "./" + "a" * 300], 3),
    "no such folder": (["inspect", "./nothing/here"], 3),
    "offline": (["inspect", "acme/tiny", "--offline"], 3),
}


@pytest.mark.parametrize("case", EXITS)
def test_the_exit_code_of(case: str) -> None:
    arguments, code = EXITS[case]
    done = modelkin(*arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def broken(folder: Path, name: str) -> Path:
    weights = save(llama_tensors())
    bodies = {
        "truncated": weights[: len(weights) // 2],
        "empty": b"",
        "no header": os.urandom(64),
        "huge header": (1 << 62).to_bytes(8, "little") + weights[8:],
    }
    return write_files(folder, {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": bodies[name]})


@pytest.mark.parametrize("name", ["truncated", "empty", "no header", "huge header"])
def test_a_broken_file_ends_with_four_and_says_where(name: str, tmp_path: Path) -> None:
    done = modelkin("inspect", str(broken(tmp_path, name)))
    assert done.returncode == 4
    assert "model.safetensors" in done.stderr
    assert "Traceback" not in done.stderr


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch PWNED",)


def test_a_pickle_that_asks_for_code_is_refused_by_name_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(tmp_path / "evil.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"x": Bomb()}, protocol=2))
        archive.writestr("archive/version", "3\n")
    done = modelkin("inspect", str(tmp_path / "evil.bin"))
    assert done.returncode == 4
    assert "system" in done.stderr
    assert not (tmp_path / "PWNED").exists()


def test_an_adapter_alone_ends_with_five_and_names_its_base(tmp_path: Path) -> None:
    files = {
        "adapter_config.json": json.dumps({"base_model_name_or_path": "acme/base-8b"}).encode(),
        "adapter_model.safetensors": save({"lora_A": llama_tensors()["model.norm.weight"]}),
    }
    done = modelkin("inspect", str(write_files(tmp_path / "a", files)))
    assert done.returncode == 5
    assert "acme/base-8b" in done.stderr


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (faults.Status(403, {"X-Error-Code": "GatedRepo"}, path="/resolve/"), 3),
        (faults.IgnoreRange(port="cdn"), 4),
        (faults.WrongRange(port="cdn"), 4),
    ],
)
def test_a_hub_fault_gives_its_exit_code(fault: faults.Fault, code: int, tmp_path: Path) -> None:
    with LoopbackHub({"acme/tiny": Repository(FILES)}, faults=[fault]) as hub:
        done = modelkin("inspect", "acme/tiny", HF_ENDPOINT=hub.endpoint, MODELKIN_CACHE=str(tmp_path))
    assert done.returncode == code
    assert done.stderr.startswith("modelkin: ")
    assert "Traceback" not in done.stderr


def test_the_demo_runs_without_network() -> None:
    done = modelkin("demo", HF_ENDPOINT="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    for pair in ("dune and demo/heath: RELATED", "dune and demo/grove: UNRELATED", "cobalt: RELATED · component-reuse"):
        assert pair in done.stdout


def test_the_list_of_bundled_models_is_a_page_and_not_json() -> None:
    done = modelkin("demo", "--list", "--json", "-")
    assert done.returncode == 2
    assert "truth.json" in done.stderr


def test_the_bundled_models_are_listed_without_the_answer_and_told_apart_from_that() -> None:
    listed, told = (modelkin("demo", option).stdout for option in ("--list", "--truth"))
    for name, folder in bundled().items():
        config = json.loads((folder / "config.json").read_text("utf-8"))
        (line,) = (line for line in listed.splitlines() if line.startswith(f"{name} "))
        assert config["model_type"] in line
        assert f"{config['vocab_size']:,}" in line
        assert truth()["models"][name]["sentence"] not in listed
        assert f"{name:8}{truth()['models'][name]['sentence']}" in told.splitlines()
    assert str(TRUTH) in listed


def test_the_demo_writes_comparisons_that_verify(tmp_path: Path) -> None:
    done = modelkin("demo", "--json", "-", "--out", str(tmp_path / "out"))
    assert [record["schema"] for record in json.loads(done.stdout)] == ["modelkin.comparison/1"] * 6
    for name in ("dune-heath", "ember-cobalt", "dune-fjord"):
        verified = modelkin("verify", str(tmp_path / "out" / f"{name}.json"))
        assert verified.returncode == 0, verified.stdout


def test_an_altered_comparison_does_not_verify(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    models = bundled()
    modelkin("compare", str(models["dune"]), str(models["grove"]), "--budget", "quick", "--json", str(path))
    record = json.loads(path.read_text("utf-8"))
    record["answers"][1]["statistic"] += 1
    path.write_text(json.dumps(record), "utf-8")
    done = modelkin("verify", str(path))
    assert done.returncode == 1
    assert "statistic" in done.stdout


def test_related_can_fail_a_build() -> None:
    models = bundled()
    arguments = ("--budget", "quick", "--fail-on", "related")
    assert modelkin("compare", str(models["dune"]), str(models["heath"]), *arguments).returncode == 10
    assert modelkin("compare", str(models["dune"]), str(models["grove"]), *arguments).returncode == 0


def test_families_are_listed() -> None:
    done = modelkin("families")
    assert "glm4_moe" in done.stdout
    assert "zai-org/GLM-4.5-Air" in done.stdout


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "m", FILES)
    script = f"{sys.executable} -m modelkin inspect {folder} --all-layers | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 141)


def test_a_place_that_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "m", FILES)
    (tmp_path / "taken").write_text("here")
    for option in ("--out", "--json"):
        done = modelkin("inspect", str(folder), option, str(tmp_path / "taken" / "x"))
        assert done.returncode == 2, done.stderr
        assert "cannot be written" in done.stderr


@pytest.mark.parametrize("command", ["compare", "inspect", "demo"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, command: str) -> None:
    (tmp_path / "taken").write_text("here")
    models = {"compare": ["no/model", "nor/this"], "inspect": ["no/model"], "demo": []}[command]
    places = {"--json": [tmp_path, tmp_path / "taken" / "x", tmp_path / "gone" / "x"], "--out": [tmp_path / "taken"]}
    for option, targets in places.items():
        for target in targets:
            done = modelkin(command, *models, option, str(target))
            assert done.returncode == 2, done.stderr  # and not 3: the models were not looked for
            assert "cannot be written" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no files")
def test_a_place_that_only_looks_writable_is_refused_before_the_work() -> None:
    for option in ("--json", "--out"):
        done = modelkin("compare", "no/model", "nor/this", option, "/proc/nope")
        assert done.returncode == 2, done.stderr
        assert "cannot be written" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_a_failure_and_no_wrong_usage(tmp_path: Path) -> None:
    done = modelkin("inspect", str(write_files(tmp_path / "m", FILES)), "--json", "/dev/full")
    assert done.returncode == 1
    assert done.stderr == "modelkin: /dev/full: cannot be written: No space left on device\n"


def test_a_plan_writes_nothing_and_says_so(tmp_path: Path) -> None:
    folder = str(write_files(tmp_path / "m", FILES))
    for option in ("--json", "--out"):
        done = modelkin("compare", folder, folder, "--dry-run", option, str(tmp_path / "x"))
        assert done.returncode == 2
        assert "--dry-run prints a plan and writes nothing" in done.stderr
    assert not (tmp_path / "x").exists()
    assert modelkin("compare", folder, folder, "--dry-run").returncode == 0


def test_a_folder_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    models = bundled()
    out = tmp_path / "new" / "folder"
    done = modelkin("compare", str(models["dune"]), str(models["grove"]), "--budget", "quick", "--out", str(out))
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in out.iterdir())
    forms = [f"comparison.{form}" for form in ("cdx.json", "json", "md", "spdx.json", "txt")]
    assert names == ["answers.csv", *forms, "figures", "layers.csv", "report.html"]
    page = (Path(__file__).parents[1] / "docs" / "reading.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in names)


@pytest.mark.parametrize(("columns", "widest"), [("60", 60), ("80", 80), ("160", 160), ("", 110), ("wide", 110)])
def test_a_page_that_is_piped_is_as_wide_as_columns_says(columns: str, widest: int, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "m", FILES)
    lines = modelkin("inspect", str(folder), COLUMNS=columns).stdout.splitlines()
    assert widest - 30 < max(map(len, lines)) <= widest


def test_an_interrupt_ends_quickly_and_quietly() -> None:
    with LoopbackHub({"acme/tiny": Repository(FILES)}, faults=[faults.Stall(60, port="cdn", count=None)]) as hub:
        # Through a shell of its own, in case whoever runs the tests ignores interrupts.
        code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import modelkin.__main__"
        command = [sys.executable, "-c", code, "inspect", "acme/tiny", "--no-cache"]
        running = subprocess.Popen(command, env={**os.environ, "HF_ENDPOINT": hub.endpoint}, stderr=subprocess.PIPE)
        try:
            while not any(line.port == "cdn" for line in hub.log) and running.poll() is None:
                time.sleep(0.05)
                if len(hub.log) >= 4:  # the stalled request is logged only when it ends
                    time.sleep(0.5)
                    break
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=20)
        finally:
            running.kill()
    assert running.returncode == 130
    assert said == b"modelkin: interrupted\n"
