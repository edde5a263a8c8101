"""Parts of Produce, Fetch and Metadata in modules of their own."""
