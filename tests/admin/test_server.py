"""The admin side over real sockets and a real store."""
