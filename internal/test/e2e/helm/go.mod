module github.com/xds-relay/xds-relay/internal/test/e2e/helm

go 1.26.0

require github.com/xds-relay/xds-relay v0.0.0

replace github.com/xds-relay/xds-relay => ../../../..
