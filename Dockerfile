# An image of the tracker. It runs without root, can write only to /data, and contains no build tools and no pip.
#   docker build -t swarmkeeper . && docker run -p 6969:6969 -p 6969:6969/udp -p 127.0.0.1:6970:6970 -v tracker:/data swarmkeeper
# It works with --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges, as in compose.yaml.
# The base is selected by version, so a new build gets Debian's security fixes. --build-arg BASE=python@sha256:… pins it.
ARG PYTHON_VERSION=3.13
ARG BASE=python:${PYTHON_VERSION}-slim-trixie

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/site.txt requirements/
COPY deploy/image/install.sh deploy/image/
COPY pyproject.toml hatch_build.py README.md LICENSE CHANGELOG.md redis.conf ./
COPY docs/keys.md docs/
COPY tracker/ tracker/
ARG REVISION=unknown
RUN WORK=/tmp/work TRACKER_COMMIT="${REVISION:-unknown}" sh deploy/image/install.sh /opt/tracker

FROM ${BASE}
ARG VERSION=unknown
ARG REVISION=unknown
# The licences of the tracker and its Python dependencies; those of Debian's packages are in /usr/share/doc.
LABEL org.opencontainers.image.title="swarmkeeper" \
    org.opencontainers.image.description="An async BitTorrent tracker whose state is a readable Redis layout" \
    org.opencontainers.image.licenses="MIT AND 0BSD AND Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND ISC AND MPL-2.0 AND PSF-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY deploy/image/system.sh /tmp/system.sh
RUN sh /tmp/system.sh && rm /tmp/system.sh
COPY --from=build /opt/tracker /opt/tracker
# In a container the admin port must listen on all addresses to be reachable. Publish it on 127.0.0.1 only.
ENV PATH=/opt/tracker/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    TRACKER_DATA__DIRECTORY=/data \
    TRACKER_ADMIN__LISTEN=0.0.0.0:6970
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 6969 6969/udp 6970
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 CMD ["tracker", "health"]
ENTRYPOINT ["tini", "--", "tracker"]
CMD ["serve"]
