package consul

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// consulVersion is the Consul that takes part.
const consulVersion = "v1.20.0"

// buildModule is the go.mod of a module that is nothing but a reason to build Consul.
// `go install` refuses Consul's own, because it replaces modules with directories of its
// repository. These have been published, too; of one of them, which only the command
// `consul troubleshoot` needs, not in this version.
const buildModule = "module build\n\ngo 1.26.0\n\n" +
	"require github.com/hashicorp/consul " + consulVersion + "\n\n" +
	"replace github.com/hashicorp/consul/troubleshoot => github.com/hashicorp/consul/troubleshoot v0.7.1\n"

// buildTime is how long a build may take on a machine that is busy.
const buildTime = 45 * time.Minute

// consulBinary is the program, built if it is not there yet.
var consulBinary = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the directory to build Consul in: %w", err)
	}
	dir := filepath.Join(cache, "xds-relay", "consul-"+consulVersion)
	binary := filepath.Join(dir, "consul")
	if _, err := os.Stat(binary); !errors.Is(err, fs.ErrNotExist) {
		return binary, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(buildModule), 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	fmt.Println("building Consul", consulVersion, "in", dir, "which takes minutes, once")
	part := binary + ".part"
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", part, "github.com/hashicorp/consul")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if _, err := run(ctx, cmd); err != nil {
		return "", fmt.Errorf("build Consul: it is fetched through the module proxy, see `go env GOPROXY`: %w", err)
	}
	return binary, os.Rename(part, binary)
})

// theConsul is the program, or the end of the test.
func theConsul(t testing.TB) string {
	t.Helper()
	binary, err := consulBinary()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func TestMain(m *testing.M) {
	code := m.Run()
	peer.Cleanup()
	os.Exit(code)
}

// root is the repository, as seen from here.
const root = "../../../.."
