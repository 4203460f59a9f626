"""What was done, who came first, how much is shared and where. Asked only after a rejection; nothing here convicts."""
