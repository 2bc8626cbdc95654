package readable

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the descriptors
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"weak"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// compressed is a FileDescriptorSet, gzipped: see TestDescriptors.
//
//go:embed descriptors.pb.gz
var compressed []byte

// Set knows messages and services by their descriptors, each of which it makes when it is needed. It may be used by
// several goroutines. It takes about a megabyte, and some more for each message that is looked at.
type Set struct {
	raw     map[string][]byte                // a FileDescriptorProto for each path
	symbols map[protoreflect.FullName]string // the path of each message's and service's file

	mu    sync.Mutex // guards what is made
	files protoregistry.Files
}

// inUse is the Set that somebody still uses, so that others can use it, too.
var inUse struct {
	sync.Mutex
	set weak.Pointer[Set]
}

// Load returns a Set of all that is embedded. It goes when nobody uses it any more.
func Load() (*Set, error) {
	inUse.Lock()
	defer inUse.Unlock()
	if s := inUse.set.Value(); s != nil {
		return s, nil
	}
	s, err := newSet(compressed)
	if err != nil {
		return nil, fmt.Errorf("readable: the embedded descriptors: %w", err)
	}
	inUse.set = weak.Make(s)
	return s, nil
}

// LoadWith returns a Set of all that is embedded and of some FileDescriptorSets. A file that is embedded stays as it is.
func LoadWith(more ...[]byte) (*Set, error) {
	if len(more) == 0 {
		return Load()
	}
	s, err := newSet(compressed)
	if err != nil {
		return nil, fmt.Errorf("readable: the embedded descriptors: %w", err)
	}
	for i, set := range more {
		if err := s.add(set); err != nil {
			return nil, fmt.Errorf("descriptor set %d: %w", i+1, err)
		}
	}
	return s, nil
}

// LoadFiles returns a Set of all that is embedded and of files with FileDescriptorSets.
func LoadFiles(paths []string) (*Set, error) {
	var sets [][]byte
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sets = append(sets, data)
	}
	s, err := LoadWith(sets...)
	if err != nil {
		return nil, fmt.Errorf("%w; write it with protoc --include_imports --descriptor_set_out", err)
	}
	return s, nil
}

// Field numbers of descriptor.proto.
const (
	fieldFile = 1 // of a FileDescriptorSet

	fieldPath     = 1 // of a FileDescriptorProto
	fieldPackage  = 2
	fieldMessages = 4
	fieldServices = 6

	fieldName   = 1 // of a DescriptorProto, and of a ServiceDescriptorProto
	fieldNested = 3
)

// newSet only looks for names: to decode all of it would take ten times as long, and as much memory.
func newSet(packed []byte) (*Set, error) {
	all, err := unpack(packed)
	if err != nil {
		return nil, err
	}
	s := &Set{raw: make(map[string][]byte), symbols: make(map[protoreflect.FullName]string)}
	return s, s.add(all)
}

// add takes in a FileDescriptorSet.
func (s *Set) add(set []byte) error {
	return each(set, func(n protowire.Number, file []byte) error {
		if n != fieldFile {
			return nil
		}
		return s.index(file)
	})
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// each calls f with the fields of a message that have a length.
func each(message []byte, f func(n protowire.Number, content []byte) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			content, _ := protowire.ConsumeBytes(message[tag:])
			if err := f(n, content); err != nil {
				return err
			}
		}
		message = message[size:]
	}
	return nil
}

// index takes in a file, whose path and package stand before its messages.
func (s *Set) index(file []byte) error {
	path, parent, known := "", protoreflect.FullName(""), false
	return each(file, func(n protowire.Number, content []byte) error {
		if known {
			return nil
		}
		switch n {
		case fieldPath:
			path = string(content)
			if _, known = s.raw[path]; !known {
				s.raw[path] = file
			}
		case fieldPackage:
			parent = protoreflect.FullName(content)
		case fieldMessages, fieldServices:
			return s.symbol(path, parent, content)
		}
		return nil
	})
}

// symbol takes in a message and those within it, or a service.
func (s *Set) symbol(path string, parent protoreflect.FullName, of []byte) error {
	name := parent
	return each(of, func(n protowire.Number, content []byte) error {
		switch n {
		case fieldName:
			name = parent.Append(protoreflect.Name(content))
			s.symbols[name] = path
		case fieldNested:
			return s.symbol(path, name, content)
		}
		return nil
	})
}

// find returns the message of a type URL, or nil if it is not known.
func (s *Set) find(typeURL string) protoreflect.MessageDescriptor {
	d, err := s.look(nameOf(typeURL))
	if err != nil {
		return nil
	}
	m, _ := d.(protoreflect.MessageDescriptor)
	return m
}

func nameOf(typeURL string) protoreflect.FullName {
	return protoreflect.FullName(typeURL[strings.LastIndexByte(typeURL, '/')+1:])
}

// look returns the descriptor of a name, having made it if need be.
func (s *Set) look(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of := name; of != ""; of = of.Parent() { // a method is within its service
		if path, ok := s.symbols[of]; ok {
			if err := s.load(path); err != nil {
				return nil, err
			}
			break
		}
	}
	return (*making)(s).FindDescriptorByName(name)
}

// load makes the descriptors of a file and of those that it depends on.
func (s *Set) load(path string) error {
	raw := s.raw[path]
	if raw == nil {
		return nil // protoregistry has it, or it is about options only
	}
	if _, err := s.files.FindFileByPath(path); err == nil {
		return nil
	}
	file := new(descriptorpb.FileDescriptorProto)
	if err := proto.Unmarshal(raw, file); err != nil {
		return err
	}
	for _, needed := range file.GetDependency() {
		if err := s.load(needed); err != nil {
			return err
		}
	}
	made, err := protodesc.FileOptions{AllowUnresolvable: true}.New(file, (*making)(s))
	if err != nil {
		return err
	}
	return s.files.RegisterFile(made)
}

// making is a Set while its mutex is held: it has what was made already.
type making Set

// FindFileByPath implements protodesc.Resolver. What the set lacks is Google's own, or about options, and is linked.
func (m *making) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := m.files.FindFileByPath(path); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (m *making) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := m.files.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// Resolver finds the messages of a Set for protojson and prototext, which look up what is in an Any.
type Resolver interface {
	protoregistry.MessageTypeResolver
	protoregistry.ExtensionTypeResolver
}

// Resolver returns the Resolver of the Set. Its messages are dynamic.
func (s *Set) Resolver() Resolver { return types{s} }

// types implements Resolver. No message has extensions.
type types struct{ set *Set }

// FindMessageByName implements protoregistry.MessageTypeResolver.
func (t types) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	return t.FindMessageByURL(string(name))
}

// FindMessageByURL implements protoregistry.MessageTypeResolver.
func (t types) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	d := t.set.find(url)
	if d == nil {
		return nil, protoregistry.NotFound
	}
	return dynamicpb.NewMessageType(d), nil
}

// FindExtensionByName implements protoregistry.ExtensionTypeResolver.
func (types) FindExtensionByName(protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

// FindExtensionByNumber implements protoregistry.ExtensionTypeResolver.
func (types) FindExtensionByNumber(protoreflect.FullName, protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return nil, protoregistry.NotFound
}

// Descriptors has the descriptors of all that is linked, and else those that are embedded, for whoever asks a server
// what it serves. It is a protodesc.Resolver.
type Descriptors struct{}

// FindFileByPath implements protodesc.Resolver.
func (Descriptors) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if !errors.Is(err, protoregistry.NotFound) {
		return f, err
	}
	s, err := Load()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.load(path); err != nil {
		return nil, err
	}
	return (*making)(s).FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (Descriptors) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if !errors.Is(err, protoregistry.NotFound) {
		return d, err
	}
	s, err := Load()
	if err != nil {
		return nil, err
	}
	return s.look(name)
}
