// Command release makes what a release consists of, from a clone of this checkout's commit: static
// binaries in archives, packages for Debian and RPM, images for containers, an SBOM for each
// binary, notes and checksums. What it makes depends on the commit, its tag, the version and the versions of Go and
// of the tools in go.mod, and on nothing else: -twice shows it.
//
// It is a module of its own, so that the product needs none of its tools. It never signs and never
// publishes: that is .github/workflows/release.yml. Limitation: it needs git, and a module proxy.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is what is made, and of what.
type release struct {
	version string    // with its v
	date    time.Time // of the commit: the time of every file
	root    string    // the clone
	stage   string    // what is put together; removed at the end
	out     string    // what is handed out
	env     []string  // of the compiler
}

// platform is an operating system and an architecture.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "_" + p.arch }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func main() {
	version := flag.String("version", "", "version to make, such as v0.1.0")
	root := flag.String("root", "../..", "the checkout")
	out := flag.String("out", "../../dist", "directory to make it in")
	twice := flag.Bool("twice", false, "make it again, from another clone and with an empty build cache, and compare")
	flag.Parse()
	if err := run(*version, *root, *out, *twice); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version, root, out string, twice bool) (err error) {
	// Making packages changes the directory.
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := committed(root); err != nil {
		return err
	}
	head, err := output(root, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	commit := string(bytes.TrimSpace(head))
	if err := makeRelease(version, root, commit, out, nil); err != nil || !twice {
		return err
	}
	return makeAgain(version, root, commit, out)
}

// semver is a version as tags have it (https://semver.org).
var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// makeRelease makes a release in out, with some variables of the environment for the compiler.
func makeRelease(version, root, commit, out string, env []string) (err error) {
	if !semver.MatchString(version) {
		return fmt.Errorf("the version is %q; write it as in: make release VERSION=v0.1.0", version)
	}
	r := &release{version: version, out: out}
	if r.stage, err = os.MkdirTemp("", "xds-relay-release"); err != nil {
		return err
	}
	defer os.RemoveAll(r.stage)
	// The compiler notes the commit in a clone, and not in a worktree.
	r.root = filepath.Join(r.stage, "clone")
	if _, err := output(root, "git", "clone", "--quiet", "--no-checkout", ".", r.root); err != nil {
		return err
	}
	if _, err := output(r.root, "git", "checkout", "--quiet", "--detach", commit); err != nil {
		return err
	}
	// Nothing of the caller's own gets into a binary.
	r.env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=true", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0")
	r.env = append(r.env, env...)
	if r.date, err = commitDate(r.root); err != nil {
		return err
	}
	notes, err := releaseNotes(r.root, version)
	if err != nil {
		return err
	}
	if err := emptied(r.out); err != nil {
		return err
	}
	if err := r.build(); err != nil {
		return err
	}
	if err := r.pack(); err != nil {
		return err
	}
	if err := r.sboms(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "RELEASE_NOTES.md"), notes, 0o644); err != nil {
		return err
	}
	if err := checksums(r.out); err != nil {
		return err
	}
	fmt.Println("made", r.version, "in", r.out)
	return nil
}

// committed: the commit has all that is here.
func committed(root string) error {
	changed, err := output(root, "git", "status", "--porcelain")
	if err == nil && len(changed) > 0 {
		err = fmt.Errorf("a release is made of a commit, and this is not committed; commit it, or put it aside:\n%s", changed)
	}
	return err
}

// makeAgain makes the release again, from another clone and with nothing in the compiler's cache, and compares.
func makeAgain(version, root, commit, out string) error {
	dir, err := os.MkdirTemp("", "xds-relay-again")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	again := filepath.Join(dir, "dist")
	if err := makeRelease(version, root, commit, again, []string{"GOCACHE=" + filepath.Join(dir, "cache")}); err != nil {
		return err
	}
	first, err := os.ReadFile(filepath.Join(out, sumsFile))
	if err != nil {
		return err
	}
	second, err := os.ReadFile(filepath.Join(again, sumsFile))
	if err != nil {
		return err
	}
	if !bytes.Equal(first, second) {
		return fmt.Errorf("the release is not reproducible; what differs has another sum:\n%s\nand, made again:\n%s", first, second)
	}
	fmt.Println("made twice, and the same")
	return nil
}

// commitDate is the time of the commit, or SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch).
func commitDate(root string) (time.Time, error) {
	text := []byte(os.Getenv("SOURCE_DATE_EPOCH"))
	if len(text) == 0 {
		var err error
		if text, err = output(root, "git", "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit: %w; outside of a checkout set SOURCE_DATE_EPOCH", err)
		}
	}
	seconds, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q; set it to seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// releaseNotes are the section of a version in CHANGELOG.md.
func releaseNotes(root, version string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	heading := "\n## [" + strings.TrimPrefix(version, "v") + "]"
	_, section, found := strings.Cut(string(text), heading)
	if !found {
		return nil, fmt.Errorf("CHANGELOG.md has no section %s; move what is under [Unreleased] to it", strings.TrimSpace(heading))
	}
	_, section, _ = strings.Cut(section, "\n")
	section, _, _ = strings.Cut(section, "\n## ")
	section, _, _ = strings.Cut(section, "\n[Unreleased]:")
	return []byte(strings.TrimSpace(section) + "\n"), nil
}

// emptied makes an empty directory, also of one that has an earlier release, and of no other.
func emptied(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	earlier := slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == sumsFile })
	if len(entries) > 0 && !earlier {
		return fmt.Errorf("%s has files, and not those of a release; remove them, or give -out another directory", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), nil, 0o644) // so that it is known even if this release fails
}

// output runs a program and returns what it prints. An error has what it says on standard error.
func output(dir, name string, args ...string) ([]byte, error) {
	return outputWith(nil, dir, name, args...)
}

func outputWith(env []string, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, env
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &said)
	}
	return out, nil
}
