"""The register as files: torrents, users, denials and allowed clients, as CSV and JSON lines, and .torrent files."""
