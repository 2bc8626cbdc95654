package files

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/xds-relay/xds-relay/cache"
	"github.com/xds-relay/xds-relay/internal/readable"
)

// Options say how a path is read.
type Options struct {
	// MaxBytes bounds all files together, and what a YAML file's aliases make of it.
	MaxBytes int
	// Descriptors are files with FileDescriptorSets, for types that Envoy's API does not have.
	Descriptors []string
	// Fingerprint makes the versions of resources.
	Fingerprint cache.Fingerprint
}

// The bounds that have no setting.
const (
	maxFiles = 1000
	maxDepth = 100
)

// Set is what a path holds.
type Set struct {
	// Resources are those of each type, by their names.
	Resources map[cache.TypeURL]map[string]Resource
	Files     int
	Bytes     int

	types *readable.Set
	found []found
}

// Resource is a resource, and where it stands.
type Resource struct {
	*cache.Resource
	At Place
}

// Place is where something stands in a file. Line and Column are 0 where the format has none, and Item is the place
// in the list, which is that of the resources if it has no name.
type Place struct {
	File         string
	Line, Column int
	List         string
	Item         int
}

// String is the place as editors and people know it.
func (p Place) String() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s[%d]", p.File, cmp.Or(p.List, "resources"), p.Item)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Load reads a path. An error that is fs.ErrNotExist says that there is no such path.
func Load(path string, o Options) (*Set, error) {
	paths, err := list(path)
	if err != nil {
		return nil, err
	}
	types, err := readable.LoadFiles(o.Descriptors)
	if err != nil {
		return nil, fmt.Errorf("upstream.files.descriptors: %w", err)
	}
	s := &Set{Resources: make(map[cache.TypeURL]map[string]Resource), Files: len(paths), types: types}
	for _, path := range paths {
		data, err := read(path, o.MaxBytes-s.Bytes, o.MaxBytes)
		if err != nil {
			return nil, err
		}
		s.Bytes += len(data)
		d, err := decode(path, data, types, o.MaxBytes)
		if err != nil {
			return nil, err
		}
		if err := s.add(d, o.Fingerprint); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// list returns the files of a path, in order: of a directory those with a known suffix.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, why(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, why(path, err)
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && known(e.Name()) {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	switch {
	case len(paths) == 0:
		return nil, fmt.Errorf("%s: there is no file of resources; their names end in %s", path, strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
	case len(paths) > maxFiles:
		return nil, fmt.Errorf("%s: there are %d files of resources, more than %d; put the resources of a type into fewer files", path, len(paths), maxFiles)
	}
	return paths, nil
}

// read reads a regular file. It must not change meanwhile.
func read(path string, room, most int) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, why(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is no regular file, and is not opened; remove it or give it another suffix", path)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a FIFO by now
	if err != nil {
		return nil, why(path, err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, why(path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(room)+1))
	if err != nil {
		return nil, why(path, err)
	}
	after, err := f.Stat()
	switch {
	case err != nil:
		return nil, why(path, err)
	case len(data) > room:
		return nil, fmt.Errorf("%s: with it the files have more than upstream.files.max_bytes (%d bytes)", path, most)
	case after.Size() != before.Size(), !after.ModTime().Equal(before.ModTime()), int64(len(data)) != after.Size():
		return nil, fmt.Errorf("%s: was written while it was read; write another file and rename it into place", path)
	case len(data) == 0:
		return nil, fmt.Errorf("%s: is empty; for a type without resources write its type_url and resources: []", path)
	}
	return data, nil
}

// why names the path in an error of the system, and what to do.
func why(path string, err error) error {
	reason := err
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		reason = e.Err
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w; let this user read it", path, reason)
	case errors.Is(err, fs.ErrNotExist):
		if target, link := os.Readlink(path); link == nil {
			return fmt.Errorf("%s: is a link to %s, which does not exist", path, target)
		}
	}
	return fmt.Errorf("%s: %w", path, reason)
}

// add takes in the resources of a file.
func (s *Set) add(d *decoded, f cache.Fingerprint) error {
	set := s.Resources[d.typeURL]
	if set == nil {
		set = make(map[string]Resource)
		s.Resources[d.typeURL] = set
	}
	for i, body := range d.resources {
		at := d.place(i)
		r, err := d.wrap(i, body)
		if err != nil {
			return fmt.Errorf("%v: %w", at, err)
		}
		name, _ := cache.NameOf(r)
		if cache.IsGlob(name) {
			return fmt.Errorf("%v: %q is the name of a glob, which stands for other names; give it another", at, name)
		}
		if other, twice := set[name]; twice {
			return fmt.Errorf("%v: %q is at %v, too; each %s has a name of its own", at, name, other.At, Kind(d.typeURL))
		}
		r.Version = ""
		set[name] = Resource{cache.NewResource(d.typeURL, r, f), at}
		s.found = append(s.found, found{d.typeURL, name, r.GetResource().GetValue()})
	}
	return nil
}

// Kind is what people call a resource of a type.
func Kind(t cache.TypeURL) string { return string(t[strings.LastIndexAny(string(t), "./")+1:]) }

// found is a resource as Notes looks at it.
type found struct {
	typeURL cache.TypeURL
	name    string
	body    []byte
}

// Count is the number of resources.
func (s *Set) Count() (n int) {
	for _, set := range s.Resources {
		n += len(set)
	}
	return n
}

// Types are those of which there is a file, in the order in which clients need them.
func (s *Set) Types() []cache.TypeURL {
	return slices.SortedFunc(maps.Keys(s.Resources), func(a, b cache.TypeURL) int {
		return cmp.Or(a.Rank()-b.Rank(), strings.Compare(string(a), string(b)))
	})
}
