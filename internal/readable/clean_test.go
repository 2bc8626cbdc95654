package readable

import (
	"runtime"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3" // linked into the program, with files about options
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func nothing(protoreflect.FullName) bool { return false }

// TestJSON: what is shown in JSON is as protojson has it, with what lies in an Any.
func TestJSON(t *testing.T) {
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(pack(t, &cluster.Cluster{Name: "a", Metadata: &core.Metadata{}}))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.ReplaceAll(string(s.JSON(s.Clean(body, nothing))), " ", ""); got != `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"a","metadata":{}}` {
		t.Errorf("it is %s", got)
	}
	if hidden := s.Clean(body, func(name protoreflect.FullName) bool { return name == "envoy.config.cluster.v3.Cluster" }); hidden != nil {
		t.Errorf("what is hidden is shown as %q", hidden)
	}
	for _, wrong := range []string{"\xff", "\x0a\x05a/b.C\x12\x01\xff"} {
		if clean, text := s.Clean([]byte(wrong), nothing), s.JSON([]byte(wrong)); clean != nil || text != nil {
			t.Errorf("%q is shown as %q, %s", wrong, clean, text)
		}
	}
}

// TestDescriptorsOfServices: a tool that asks for a service that is not linked is given its file, with all that this depends on.
func TestDescriptorsOfServices(t *testing.T) {
	for _, symbol := range []protoreflect.FullName{"envoy.service.status.v3.ClientStatusDiscoveryService", "envoy.service.status.v3.ClientStatusDiscoveryService.FetchClientStatus", "envoy.service.status.v3.ClientConfig.GenericXdsConfig"} {
		d, err := Descriptors{}.FindDescriptorByName(symbol)
		if err != nil {
			t.Fatal(err)
		}
		var set descriptorpb.FileDescriptorSet
		var add func(f protoreflect.FileDescriptor)
		added := make(map[string]bool)
		add = func(f protoreflect.FileDescriptor) {
			if f.IsPlaceholder() {
				t.Errorf("%s is not there", f.Path())
			}
			if added[f.Path()] {
				return
			}
			added[f.Path()] = true
			again, err := Descriptors{}.FindFileByPath(f.Path())
			if err != nil || again.Path() != f.Path() {
				t.Errorf("%s: %v", f.Path(), err)
			}
			for i := range f.Imports().Len() {
				add(f.Imports().Get(i).FileDescriptor)
			}
			set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
		}
		add(d.ParentFile())
		if _, err := protodesc.NewFiles(&set); err != nil {
			t.Errorf("%s: %v", symbol, err)
		}
	}
	for _, symbol := range []protoreflect.FullName{"nobody.knows.This", "envoy.service.status.v3.Nothing", ""} {
		if d, err := (Descriptors{}).FindDescriptorByName(symbol); err == nil {
			t.Errorf("%q is %v", symbol, d.FullName())
		}
	}
	if _, err := (Descriptors{}).FindFileByPath("no/such.proto"); err == nil {
		t.Error("there is a file that is not there")
	}
}

// TestLoad: who looks at the same time shares one Set, and nobody keeps it who does not look.
func TestLoad(t *testing.T) {
	first, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Load(); err != nil || second != first {
		t.Errorf("there are two: %v", err)
	}
	runtime.KeepAlive(first)
	for range 3 {
		runtime.GC()
	}
	if s := inUse.set.Value(); s != nil {
		t.Error("it is still there")
	}
}

// BenchmarkLoad makes a Set, and looks at a Listener and what it depends on.
func BenchmarkLoad(b *testing.B) {
	for name, look := range map[string]string{"nothing": "", "listener": "envoy.config.listener.v3.Listener", "service": "envoy.service.status.v3.ClientStatusDiscoveryService"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := newSet(compressed)
				if err == nil && look != "" {
					_, err = s.look(protoreflect.FullName(look))
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
