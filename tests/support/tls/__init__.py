"""A certificate of our own for localhost and 127.0.0.1, and its key, for tests alone. Valid for a hundred years:

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=dledger tests" \\
    -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout key.pem -out cert.pem
"""

from __future__ import annotations

from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext, create_default_context

CERTIFICATE = Path(__file__).with_name("cert.pem")
KEY = Path(__file__).with_name("key.pem")


def of_server() -> SSLContext:
    made = SSLContext(PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERTIFICATE, KEY)
    return made


def of_client() -> SSLContext:
    return create_default_context(cafile=str(CERTIFICATE))
