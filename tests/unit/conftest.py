"""Unit tests start no Ray: what would join or start one in passing fails instead."""

import os

os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # read when Ray is imported
