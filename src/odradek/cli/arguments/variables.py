"""Environment variables that the commands read."""

from typing import Final

SERVER_VARIABLE: Final = "ODRADEK_BOOTSTRAP_SERVER"
"""Brokers to connect to first, where no option names any."""

PROFILE_VARIABLE: Final = "ODRADEK_PROFILE"
"""The profile that applies, where no option names one."""

PASSWORD_VARIABLE: Final = "ODRADEK_USER_PASSWORD"  # noqa: S105 - a name
"""The password of the user that `odradek users` creates or alters."""
