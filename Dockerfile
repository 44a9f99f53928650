# The operator's image: one static binary and nothing else.
#
# The build context is the directory that holds the binary, `manager`, built for musl; `make image` puts it into dist/.
# Any ordinary builder accepts this file:
#
#     docker build --file Dockerfile --tag etcd-operator:dev dist
#
# and so does the lab, which has no container builder and understands FROM scratch, COPY, USER, ENTRYPOINT, ENV, LABEL,
# WORKDIR and EXPOSE. Keep to these.
FROM scratch

LABEL org.opencontainers.image.title="etcd-operator" \
      org.opencontainers.image.description="Runs etcd clusters on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"

COPY manager /manager

# By number: there is no /etc/passwd, and runAsNonRoot needs to see that it is not 0.
USER 65532:65532

# 8443 /metrics as the chart has it, 8080 by default; 8081 /healthz and /readyz
EXPOSE 8080 8081 8443

# Huge pages are for huge heaps: with them the operator would hold twice the memory it uses.
ENV MIMALLOC_ALLOW_THP=0

ENTRYPOINT ["/manager"]
