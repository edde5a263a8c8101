"""Raw connections, as the integration tests have them."""

from tests.integration.conftest import connect

__all__ = ["connect"]
