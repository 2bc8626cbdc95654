//go:build tools

package helm

// The module has the CRDs, as files; this keeps it in go.mod.
import _ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
