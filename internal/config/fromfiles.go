package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Files is how an address files:///path is read.
type Files struct {
	// Poll is how often the path is looked at without a report of a change, for
	// file systems that report none; 0 is never (FS-10).
	// Default: 30s.
	Poll time.Duration `yaml:"poll"`

	// Optional lets the relay start although the path is missing. Until it is there,
	// this control plane counts as one that cannot be reached (FS-6).
	// Default: false.
	Optional bool `yaml:"optional"`

	// ReloadOnCloseWrite also reads a file again that was written in place, once it is
	// closed. Without it only what is renamed into place, or a changed link, is read: a
	// file that is written over may be read while half of it is there (FS-4).
	// Default: false.
	ReloadOnCloseWrite bool `yaml:"reload_on_close_write"`

	// MaxBytes bounds the files of a path together, and what the aliases of a YAML file
	// make of it.
	// Default: 64MiB.
	MaxBytes Bytes `yaml:"max_bytes"`

	// Descriptors are files with types that Envoy's API does not have, as protoc
	// --include_imports --descriptor_set_out makes them.
	// Default: [].
	Descriptors []string `yaml:"descriptors"`
}

const filesScheme = "files://"

// FilesPath is the path of an address files:///path; false: it is another address.
func FilesPath(address string) (path string, ok bool) {
	return strings.CutPrefix(address, filesScheme)
}

// checkFilesPath checks an address that begins with files:.
func checkFilesPath(s string) error {
	switch path, ok := FilesPath(s); {
	case !ok || !strings.HasPrefix(path, "/"):
		rest := strings.TrimLeft(strings.TrimPrefix(s, "files:"), "/")
		return fmt.Errorf("%q is not an absolute path; write three slashes: files:///%s", clip(s), clip(rest))
	case path == "/":
		return fmt.Errorf("%q is the root directory; write files:///path of a directory or file", clip(s))
	case strings.ContainsRune(path, 0):
		return fmt.Errorf("the path contains a zero byte")
	}
	return nil
}

// FilesAddress is the address of a path, as serve --from takes it.
func FilesAddress(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("the path is empty; name a directory or file with resources")
	}
	path, err := filepath.Abs(path)
	return filesScheme + path, err
}

// Resort reports whether an entry is used only where nothing else has a copy (UP-26).
func (f *Fallback) Resort() bool {
	if f.LastResort != nil {
		return *f.LastResort
	}
	_, files := FilesPath(f.Address)
	return files
}

// fromFiles refuses what says something of a connection, which files do not have. forwards: the entry forwards
// headers without being asked to.
func (v *validator) fromFiles(e *Entry, forwards bool) {
	const hint = "remove it: files are read by the relay itself"
	for _, said := range []struct {
		is  bool
		key string
	}{
		{e.TLS.Enabled(), ".tls"}, {e.Insecure, ".insecure"}, {len(e.Headers) > 0, ".headers"},
		{e.ForwardHeaders && !forwards, ".forward_headers"},
	} {
		if said.is {
			v.fail(e.Section+said.key, hint, "says nothing about %q", clip(e.Address))
		}
	}
}

// lastResort: only the last entry can be it, since the relay tries the others again meanwhile.
func (v *validator) lastResort(s Source) {
	for i, e := range s.Entries {
		if i > 0 && i < len(s.Entries)-1 && e.Resort() {
			v.fail(e.Section+".address", fmt.Sprintf("move it to the end of the list, or set %s.last_resort: false", e.Section),
				"%q is a last resort, and others stand behind it", clip(e.Address))
		}
	}
}
