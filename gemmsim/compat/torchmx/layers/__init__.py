"""torchmx's layers."""
