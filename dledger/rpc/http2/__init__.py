"""HTTP/2 (RFC 9113) without IO: bytes in, bytes out, and calls on the streams that they are about."""
