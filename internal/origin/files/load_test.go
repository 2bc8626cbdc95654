package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clusterpb "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/xds-relay/xds-relay/cache"
)

const clusterYAML = `# clusters
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: a
  connect_timeout: 1s
`

func options() Options { return Options{MaxBytes: 1 << 20} }

// write makes a directory with some files.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFormats: the same resource has the same version in every format (FS-2, FS-9).
func TestFormats(t *testing.T) {
	body, err := anypb.New(&clusterpb.Cluster{Name: "a", ConnectTimeout: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	response := &discovery.DiscoveryResponse{Resources: []*anypb.Any{body}}
	binary, err := proto.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := protojson.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	text := `resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "a" connect_timeout { seconds: 1 } } }`
	wrapped := `resources: [{"@type": type.googleapis.com/envoy.service.discovery.v3.Resource, version: "7", resource: {"@type": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connect_timeout: 1s}}]`
	aliased := "type_url: type.googleapis.com/envoy.config.cluster.v3.Cluster\nresources:\n- &c {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connect_timeout: &t 1s}\n"
	want := cache.Fingerprint{}.Of(body.GetTypeUrl(), body.GetValue(), nil)
	for name, content := range map[string]string{
		"c.pb": string(binary), "c.PB": string(binary), "c.json": string(asJSON), "c.yaml": clusterYAML, "c.yml": clusterYAML,
		"c.pb_text": text, "c.textproto": text, "c.txtpb": text, "d.yaml": wrapped, "e.yaml": aliased,
	} {
		s, err := Load(write(t, map[string]string{name: content, ".hidden.yaml": "no", "README.md": "no"}), options())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r := s.Resources[cache.Cluster]["a"]; r.Resource == nil || r.Version != want {
			t.Errorf("%s: %+v is there, and not version %s", name, s.Resources, want)
		}
	}
	one := filepath.Join(write(t, map[string]string{"clusters": string(asJSON)}), "clusters")
	if s, err := Load(one, options()); err != nil || s.Count() != 1 {
		t.Errorf("a file without a suffix is JSON: %v", err)
	}
}

// TestMistakes: whatever is wrong is one error that says where, and what to do.
func TestMistakes(t *testing.T) {
	const head = "resources:\n- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n"
	sound, err := proto.Marshal(&discovery.DiscoveryResponse{TypeUrl: string(cache.Cluster), Resources: []*anypb.Any{{TypeUrl: string(cache.Cluster), Value: []byte("\n\x01a")}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":             {nil, "DIR: there is no file of resources; their names end in .json, .pb, .pb_text, .textproto, .txtpb, .yaml, .yml"},
		"unknown suffixes":    {map[string]string{"a.txt": "x"}, "DIR: there is no file of resources; their names end in .json"},
		"empty":               {map[string]string{"a.yaml": ""}, "DIR/a.yaml: is empty; for a type without resources write its type_url and resources: []"},
		"only comments":       {map[string]string{"a.yaml": "# x\n"}, "DIR/a.yaml: holds nothing; for a type without resources"},
		"no type":             {map[string]string{"a.yaml": "resources: []\n"}, "DIR/a.yaml: has neither type_url nor resources, so that it says nothing"},
		"unknown field":       {map[string]string{"a.yaml": head + "  name: a\n  conect_timeout: 1s\n"}, `DIR/a.yaml:4:3: unknown field "conect_timeout"`},
		"unknown field deep":  {map[string]string{"a.yaml": head + "  name: a\n  lb_subset_config: {subset_selectors: [{kes: [x]}]}\n"}, `DIR/a.yaml:4:42: unknown field "kes"`},
		"after other letters": {map[string]string{"a.yaml": head + "  name: \"höß𝄞\"\n  x: 1\n"}, `DIR/a.yaml:4:3: unknown field "x"`},
		"wrong value":         {map[string]string{"a.yaml": head + "  name: a\n  connect_timeout: soon\n"}, `DIR/a.yaml:4:20: invalid google.protobuf.Duration value`},
		"unknown type":        {map[string]string{"a.yaml": "resources:\n- \"@type\": type.googleapis.com/no.such.Type\n"}, `DIR/a.yaml:2:12: unable to resolve "type.googleapis.com/no.such.Type": "not found"`},
		"JSON":                {map[string]string{"a.json": "{\n \"resources\": [\n  {\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"nam\": 1}]}"}, `DIR/a.json:3:68: unknown field "nam"`},
		"JSON, broken":        {map[string]string{"a.json": "{\n \"resources\": [\n"}, `DIR/a.json:3:1: ends too early`},
		"JSON twice a key":    {map[string]string{"a.json": `{"type_url": "a", "type_url": "b"}`}, `DIR/a.json:1:19: duplicate field "type_url"`},
		"text":                {map[string]string{"a.txtpb": "resources {\n  [type.googleapis.com/envoy.config.cluster.v3.Cluster] {\n x: 1 }}"}, `DIR/a.txtpb:3:2: unknown field`},
		"byte order mark":     {map[string]string{"a.yaml": "\uFEFF" + clusterYAML}, `DIR/a.yaml:1:1: begins with a byte order mark; save it as UTF-8 without one`},
		"tab":                 {map[string]string{"a.yaml": head + "\tname: a\n"}, `DIR/a.yaml:3:1: is indented with a tab; YAML wants spaces`},
		"twice a key":         {map[string]string{"a.yaml": head + "  name: a\n  name: b\n"}, `DIR/a.yaml:4:3: the key "name" stands at 3:3, too; keep one`},
		"two documents":       {map[string]string{"a.yaml": clusterYAML + "---\nresources: []\n"}, `DIR/a.yaml:6:1: a second YAML document begins here; keep one in a file`},
		"tag":                 {map[string]string{"a.yaml": "resources: !!seq []\n"}, `DIR/a.yaml:1:12: has a tag, which JSON has not`},
		"unknown alias":       {map[string]string{"a.yaml": "resources: *x\n"}, `DIR/a.yaml:1:12: is an alias of an anchor that does not stand before it; quote a value that begins with *`},
		"alias of itself":     {map[string]string{"a.yaml": "resources: &x [*x]\n"}, `DIR/a.yaml:1:16: the alias *x contains itself`},
		"many aliases":        {map[string]string{"a.yaml": laughs()}, `with its aliases the file has more than upstream.files.max_bytes (1048576 bytes)`},
		"deep YAML":           {map[string]string{"a.yaml": strings.Repeat("- ", 1000)}, `DIR/a.yaml:1:201: nests more than 100 deep`},
		"deep blocks":         {map[string]string{"a.yaml": blocks(200)}, `nests more than 100 deep`},
		"deep JSON":           {map[string]string{"a.json": strings.Repeat("[", 1000)}, `DIR/a.json:1:101: nests more than 100 deep`},
		"deep text":           {map[string]string{"a.txtpb": strings.Repeat("a{", 1000)}, `DIR/a.txtpb:1:202: nests more than 100 deep`},
		"truncated binary":    {map[string]string{"a.pb": string(sound[:len(sound)-3])}, `DIR/a.pb: is no binary DiscoveryResponse, or is cut short`},
		"body of rubbish":     {map[string]string{"a.pb": strings.Replace(string(sound), "\n\x01a", "\n\x09a", 1)}, `DIR/a.pb: resources[0]: is no Cluster, or is cut short`},
		"a ttl":               {map[string]string{"a.yaml": "resources:\n- {\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource, name: a, ttl: 1s, resource: {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a}}\n"}, `DIR/a.yaml:2:3: has a ttl, which nobody would renew; remove it`},
		"no name":             {map[string]string{"a.yaml": head + "  connect_timeout: 1s\n"}, `DIR/a.yaml:2:3: has no name; give it one`},
		"a glob":              {map[string]string{"a.yaml": head + "  name: xdstp://a/envoy.config.cluster.v3.Cluster/*\n"}, `DIR/a.yaml:2:3: "xdstp://a/envoy.config.cluster.v3.Cluster/*" is the name of a glob, which stands for other names; give it another`},
		"two types": {map[string]string{"a.yaml": clusterYAML + "- \"@type\": type.googleapis.com/envoy.config.listener.v3.Listener\n  name: l\n"},
			`DIR/a.yaml:6:3: is of type "type.googleapis.com/envoy.config.listener.v3.Listener" in a file of type "type.googleapis.com/envoy.config.cluster.v3.Cluster"; each type has files of its own`},
		"one name twice": {map[string]string{"a.yaml": clusterYAML + "- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: a\n"}, `DIR/a.yaml:6:3: "a" is at DIR/a.yaml:3:3, too; each Cluster has a name of its own`},
		"one name in two files": {map[string]string{"a.yaml": clusterYAML, "b.json": "{\"resources\": [\n {\"@type\": \"type.googleapis.com/envoy.config.cluster.v3.Cluster\", \"name\": \"a\"}]}"},
			`DIR/b.json:2:2: "a" is at DIR/a.yaml:3:3, too; each Cluster has a name of its own`},
		"too much": {map[string]string{"a.yaml": clusterYAML, "b.yaml": strings.Repeat("#", 1<<20)}, `DIR/b.yaml: with it the files have more than upstream.files.max_bytes (1048576 bytes)`},
		"no UTF-8": {map[string]string{"a.yaml": "a: \xff\n"}, `DIR/a.yaml:1:1: is not UTF-8; save it as such`},
	} {
		dir := write(t, c.files)
		_, err := Load(dir, options())
		if err == nil || !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(err.Error(), dir, "DIR"), "\u00a0", " "), c.want) {
			t.Errorf("%s: %v\nis not\n%s", name, err, c.want)
		}
	}
}

// laughs is a file whose aliases grow without bound.
func laughs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "a%[1]d: &a%[1]d [%[2]s]\n", i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return b.String()
}

func blocks(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%*sa:\n", i, "")
	}
	return b.String()
}

// TestUnreadable: what the system refuses, and what is no file, is said with its path.
func TestUnreadable(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": clusterYAML})
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a dangling link": {func(path string) error { return os.Symlink("gone", path) }, "b.yaml: is a link to gone, which does not exist"},
		"a FIFO":          {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "b.yaml: is no regular file, and is not opened"},
		"a directory":     {func(path string) error { return os.Mkdir(path, 0o700) }, "b.yaml: is no regular file, and is not opened"},
		"no permission":   {func(path string) error { return os.WriteFile(path, []byte(clusterYAML), 0) }, "b.yaml: permission denied; let this user read it"},
	} {
		if name == "no permission" && os.Getuid() == 0 {
			continue
		}
		path := filepath.Join(dir, "b.yaml")
		if err := c.make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, options()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(filepath.Join(dir, "gone"), options()); err == nil || !strings.Contains(err.Error(), "gone: no such file or directory") {
		t.Error(err)
	}
	if err := why("x", &os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}); err.Error() != "x: permission denied; let this user read it" {
		t.Error(err)
	}
}

// TestManyFiles: their number is bounded.
func TestManyFiles(t *testing.T) {
	files := make(map[string]string)
	for i := range maxFiles + 1 {
		files[fmt.Sprintf("%d.yaml", i)] = "x"
	}
	if _, err := Load(write(t, files), options()); err == nil || !strings.Contains(err.Error(), "there are 1001 files of resources, more than 1000") {
		t.Error(err)
	}
}

// BenchmarkLoad: 10,000 clusters in YAML.
func BenchmarkLoad(b *testing.B) {
	var text strings.Builder
	text.WriteString("resources:\n")
	const clusters = 10_000
	for i := range clusters {
		fmt.Fprintf(&text, `- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: cluster-%[1]d
  type: STRICT_DNS
  connect_timeout: 1s
  load_assignment:
    cluster_name: cluster-%[1]d
    endpoints:
    - lb_endpoints:
      - endpoint:
          address:
            socket_address: {address: host-%[1]d.example.com, port_value: 80}
`, i)
	}
	dir := write(b, map[string]string{"clusters.yaml": text.String()})
	for b.Loop() {
		s, err := Load(dir, Options{MaxBytes: 64 << 20})
		if err != nil || s.Count() != clusters {
			b.Fatal(err)
		}
	}
}
