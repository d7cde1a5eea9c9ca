"""A content pipeline over a real documentation tree: generate, validate, publish, in strict order inside each directory."""
