"""What the operator exits with."""

from __future__ import annotations

EXIT_CODES = {0: "Told to end.", 2: "A setting is wrong, or there is no login to an API server."}
