"""What commands take: shared options, names, profiles, partition files, suggestions and examples."""
