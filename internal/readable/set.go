package readable

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the descriptors
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// compressed is a FileDescriptorSet, gzipped: see TestDescriptors.
//
//go:embed descriptors.pb.gz
var compressed []byte

// Set knows messages by their descriptors, which it makes when they are needed. It may be used by several goroutines,
// and takes some megabytes, so it should not be kept for long.
type Set struct {
	mu       sync.Mutex
	raw      map[string]*descriptorpb.FileDescriptorProto // by path
	messages map[protoreflect.FullName]string             // the path of each message's file
	files    protoregistry.Files
}

// New returns a Set of all messages that are embedded.
func New() (*Set, error) {
	all, err := unpack(compressed)
	if err != nil {
		return nil, fmt.Errorf("readable: the embedded descriptors: %w", err)
	}
	s := &Set{raw: make(map[string]*descriptorpb.FileDescriptorProto), messages: make(map[protoreflect.FullName]string)}
	for _, f := range all.GetFile() {
		s.raw[f.GetName()] = f
		s.index(f.GetName(), protoreflect.FullName(f.GetPackage()), f.GetMessageType())
	}
	return s, nil
}

func unpack(packed []byte) (*descriptorpb.FileDescriptorSet, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	all := new(descriptorpb.FileDescriptorSet)
	return all, proto.Unmarshal(data, all)
}

func (s *Set) index(path string, parent protoreflect.FullName, messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		name := parent.Append(protoreflect.Name(m.GetName()))
		s.messages[name] = path
		s.index(path, name, m.GetNestedType())
	}
}

// find returns the message of a type URL, or nil if it is not known.
func (s *Set) find(typeURL string) protoreflect.MessageDescriptor {
	name := protoreflect.FullName(typeURL[strings.LastIndexByte(typeURL, '/')+1:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if path, ok := s.messages[name]; ok && s.load(path) != nil {
		return nil // it is in no state to be used
	}
	d, err := s.FindDescriptorByName(name)
	if err != nil {
		return nil
	}
	m, _ := d.(protoreflect.MessageDescriptor)
	return m
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
	for _, needed := range raw.GetDependency() {
		if err := s.load(needed); err != nil {
			return err
		}
	}
	file, err := protodesc.FileOptions{AllowUnresolvable: true}.New(raw, s)
	if err != nil {
		return err
	}
	return s.files.RegisterFile(file)
}

// FindFileByPath implements protodesc.Resolver. What the set lacks is Google's own, and is linked.
func (s *Set) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := s.files.FindFileByPath(path); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (s *Set) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := s.files.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
