"""What commands print: tables, documents for programs, colours, repeated output, questions."""
