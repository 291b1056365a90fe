"""The JSON of the HTTP API: what is checked on the way in, and what the OpenAPI document says of the way out."""
