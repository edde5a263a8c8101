"""APIs: one module per API key. What several of them share lies in `requests`, `services` and `data`."""
