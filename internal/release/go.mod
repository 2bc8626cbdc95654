module github.com/xds-relay/xds-relay/internal/release

go 1.26.0
