package envoygateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xds-relay/xds-relay/internal/test/e2e/realenvoy"
	"github.com/xds-relay/xds-relay/internal/test/peer"
)

// Version of Envoy Gateway, from the module proxy.
const (
	gatewayModule  = "github.com/envoyproxy/gateway"
	gatewayVersion = "v1.9.1"
)

// Where the process that runs the tests finds what the one before it has built; the
// second of them is what tells it that it is that process.
const (
	relayEnv   = peer.BinaryEnv
	gatewayEnv = "XDS_RELAY_E2E_GATEWAY"
)

// TestMain first builds what the tests run, for which it may need other hosts, and then
// runs itself again in a network where there are none.
func TestMain(m *testing.M) {
	if os.Getenv(gatewayEnv) != "" {
		if err := loopbackUp(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		goleak.VerifyTestMain(m)
		return
	}
	code, err := again()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// again builds the programs and runs the tests in a process of its own.
func again() (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "xds-relay-e2e")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	relay := filepath.Join(dir, "xds-relay")
	if err := peer.Build(relay); err != nil {
		return 0, err
	}
	gateway, err := buildGateway(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := realenvoy.Fetch(ctx); err != nil {
		return 0, err
	}
	// What starts it must outlive it, so that it can have it die with this process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), relayEnv+"="+relay, gatewayEnv+"="+gateway)
	if err := startAlone(cmd); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// root is the repository.
const root = "../../../.."

// buildGateway builds Envoy Gateway if it has not been built before. It takes minutes.
func buildGateway(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "xds-relay", "envoy-gateway-"+gatewayVersion, "envoy-gateway")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Printf("building Envoy Gateway %s, which takes minutes\n", gatewayVersion)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// Beside where it goes, so that the last step is a rename.
	dir, err := os.MkdirTemp(filepath.Dir(path), "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, []string{"GOBIN=" + dir}, "install", "-trimpath", "-ldflags", "-s -w", gatewayModule+"/cmd/envoy-gateway@"+gatewayVersion); err != nil {
		return "", err
	}
	return path, os.Rename(filepath.Join(dir, "envoy-gateway"), path)
}

// build runs the go tool, outside of any workspace.
func build(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

// patience is how long a test waits for what has no limit of its own. It is generous:
// only a test that fails spends it.
const patience = 60 * time.Second
