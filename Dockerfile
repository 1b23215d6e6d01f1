# One node. Build:  docker build -t dledger .
# The base needs Python 3.11 or newer with venv; `--build-arg BASE=…` takes another one, `--build-arg PIP_FLAGS=…` tells
# pip where packages come from.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ARG PIP_FLAGS=""
COPY . /src
RUN python3 -m venv /opt/dledger && /opt/dledger/bin/pip install --no-cache-dir ${PIP_FLAGS} /src

FROM ${BASE}
COPY --from=build /opt/dledger /opt/dledger
COPY deploy/healthcheck.py /opt/dledger/healthcheck.py
RUN mkdir -p /var/lib/dledger && chown 10001:10001 /var/lib/dledger
USER 10001:10001
ENV PATH=/opt/dledger/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DLEDGER_DATA=/var/lib/dledger
VOLUME /var/lib/dledger
# for nodes, for clients (gRPC), for Prometheus
EXPOSE 20911 20912 20913
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s --retries=5 \
    CMD ["python3", "/opt/dledger/healthcheck.py"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["dledger"]
CMD ["serve"]
