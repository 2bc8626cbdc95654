package readable

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

var update = flag.Bool("update", false, "write descriptors.pb.gz")

// modules are those whose messages are embedded.
var modules = []string{
	"github.com/envoyproxy/go-control-plane/envoy", "github.com/cncf/xds/go", "cel.dev/expr", "go.opentelemetry.io/proto/otlp",
	"google.golang.org/genproto/googleapis/rpc", "google.golang.org/genproto/googleapis/api",
}

// TestDescriptors: what is embedded is what the generated code of the modules in go.mod has, without version 2 of
// Envoy's API. After a change of go.mod, run it with -update. It reads the source: compiling all of the code takes
// minutes.
func TestDescriptors(t *testing.T) {
	all := new(descriptorpb.FileDescriptorSet)
	for _, module := range modules {
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Skip("the modules' source is not here: ", err)
		}
		all.File = append(all.File, filesOf(t, strings.TrimSpace(string(dir)))...)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if _, err := w.Write(data); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("descriptors.pb.gz", packed.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	packed, err := unpack(compressed)
	embedded := new(descriptorpb.FileDescriptorSet)
	if err == nil {
		err = proto.Unmarshal(packed, embedded)
	}
	if err == nil {
		all.Reset()
		err = proto.Unmarshal(data, all) // as the other one was read
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(all.GetFile()) < 500 || !proto.Equal(all, embedded) {
		t.Errorf("%d files are embedded, and not as the %d of go.mod's modules are: go test ./internal/readable -run Descriptors -update", len(embedded.GetFile()), len(all.GetFile()))
	}
}

// filesOf reads the descriptors out of a module's generated code, where they stand as string constants.
func filesOf(t *testing.T, dir string) (files []*descriptorpb.FileDescriptorProto) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".pb.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		raw := descriptor(t, path, string(text))
		if raw == nil {
			return nil
		}
		f := new(descriptorpb.FileDescriptorProto)
		if err := (proto.UnmarshalOptions{Resolver: new(protoregistry.Types)}).Unmarshal(raw, f); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if strings.Contains(f.GetName(), "/v2") || strings.Contains(f.GetName(), "annotations/") {
			return nil
		}
		files = append(files, plain(f))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// descriptor is the constant in one file's code: lines of quoted strings with a plus between them.
func descriptor(t *testing.T, path, text string) (raw []byte) {
	_, rest, ok := strings.Cut(text, "_rawDesc = \"\" +\n")
	if !ok {
		return nil
	}
	for line := range strings.Lines(rest) {
		line = strings.TrimSpace(line)
		s, more := strings.CutSuffix(line, " +")
		part, err := strconv.Unquote(s)
		if err != nil {
			t.Fatalf("%s: %v: %s", path, err, line)
		}
		if raw = append(raw, part...); !more {
			return raw
		}
	}
	return raw
}

// plain drops all options except those of protobuf itself, the one that marks a sensitive field, and what a field's
// value must be.
func plain(f *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	f.Extension, f.Options = nil, nil
	for _, s := range f.GetService() {
		s.Options = nil
		for _, m := range s.GetMethod() {
			m.Options = nil
		}
	}
	var messages func([]*descriptorpb.DescriptorProto)
	enums := func(all []*descriptorpb.EnumDescriptorProto) {
		for _, e := range all {
			strip(e.GetOptions().ProtoReflect())
			for _, v := range e.GetValue() {
				v.Options = nil
			}
		}
	}
	messages = func(all []*descriptorpb.DescriptorProto) {
		for _, m := range all {
			m.Extension = nil
			strip(m.GetOptions().ProtoReflect())
			for _, o := range m.GetOneofDecl() {
				o.Options = nil
			}
			for _, field := range m.GetField() {
				strip(field.GetOptions().ProtoReflect())
			}
			enums(m.GetEnumType())
			messages(m.GetNestedType())
		}
	}
	enums(f.GetEnumType())
	messages(f.GetMessageType())
	return f
}

const (
	fieldSensitive = 76569463 // udpa.annotations.sensitive
	fieldRules     = 1071     // validate.rules
)

func strip(options protoreflect.Message) {
	if !options.IsValid() {
		return
	}
	var kept []byte
	for rest := options.GetUnknown(); len(rest) > 0; {
		number, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			break
		}
		if number == fieldSensitive || number == fieldRules {
			kept = append(kept, rest[:n]...)
		}
		rest = rest[n:]
	}
	options.SetUnknown(kept)
}
