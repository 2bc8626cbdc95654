package xdstest

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
)

func TestResourcesPrintAsTheyAreRead(t *testing.T) {
	for _, s := range []string{
		"a", "a@1", "a@2=1", "a=1", "a@1[x,y]", "a@1{eds}", "a@1{eds=svc}", "a@1~", "a[x]~", "a@1:LDS", "a@1(10s)",
		`"xdstp://authority/type/id?p=1"@1`, `a@"1:ff"`, `"a b"@"x y"=z["route/host:80"]{eds="s t"}:FOO(1m0s)`, `a@?`,
	} {
		r, err := ParseResource(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
		} else if r.String() != s {
			t.Errorf("%s: printed as %s", s, r)
		}
	}
	for _, s := range []string{`"a`, "a[x", "a{ads}", "a(ten)", `a"x"`, `a[x]y`} {
		if r, err := ParseResource(s); err == nil {
			t.Errorf("%s: read as %+v", s, r)
		}
	}
}

func TestBodiesCarryNameAndLabel(t *testing.T) {
	for _, short := range []string{"LDS", "CDS", "RDS", "EDS", "SDS", "RTDS", "ECDS", "SRDS", "VHDS", "LEDS", "FOO"} {
		url := TypeURL(short)
		if ShortName(url) != short {
			t.Errorf("%s: comes back as %s", short, ShortName(url))
		}
		body, err := Resource{Name: "a=b", Label: "7"}.Body(url)
		if err != nil {
			t.Fatal(err)
		}
		var got Resource
		if !got.readBody(body) || got.Label != "7" || got.Name != "a=b" && short != "LEDS" || body.GetTypeUrl() != url {
			t.Errorf("%s: read %+v from %v", short, got, body)
		}
	}
	for _, foreign := range []*anypb.Any{{TypeUrl: "x/y.Z"}, {TypeUrl: TypeURL("CDS"), Value: []byte{0xff}}, {TypeUrl: TypeURL("FOO")}} {
		var got Resource
		if got.readBody(foreign) {
			t.Errorf("%v: read as %+v", foreign, got)
		}
	}
	if _, err := (Resource{Name: "a", EDS: true}).Body(TypeURL("LDS")); err == nil {
		t.Error("a Listener was made to ask EDS")
	}
}

func TestCommandsAreRead(t *testing.T) {
	cds := TypeURL("CDS")
	for _, c := range []struct {
		actor, text string
		want        Command
	}{
		{"up", `resp CDS nonce=u1 a@1 -gone !x=NOT_FOUND"no such"`, Command{Verb: "resp", TypeURL: cds,
			Resources: []Resource{{Name: "a", Version: "1", Label: "1"}}, Minus: []string{"gone"},
			Errors: []ResourceError{{"x", Status{5, "no such"}}}, Options: map[string]string{"nonce": "u1"}}},
		{"aux", `end UNAVAILABLE "bye bye"`, Command{Verb: "end", Status: Status{14, "bye bye"}, Options: map[string]string{}}},
		{"up2", "end", Command{Verb: "end", Options: map[string]string{}}},
		{"c1", `sub CDS * a -c -"x:y" init=a@1,"b,c"@"lit" nonce= err="no, no"`, Command{Verb: "sub", TypeURL: cds, Names: []string{"*", "a"},
			Minus: []string{"c", "x:y"}, Options: map[string]string{"nonce": "", "err": "no, no"},
			Init: []Resource{{Name: "a", Version: "1", Label: "1"}, {Name: "b,c", Version: "lit", Literal: true, Label: "lit"}}}},
		{"c12", "open sotw LDS nonode", Command{Verb: "open", Variant: "sotw", TypeURL: TypeURL("LDS"), Options: map[string]string{"nonode": ""}}},
		{"c1", `nack FOO "why not" nonce=#1`, Command{Verb: "nack", TypeURL: testPrefix + "FOO", Status: Status{0, "why not"}, Options: map[string]string{"nonce": "#1"}}},
		{"c1", `ack "x/y.Z"`, Command{Verb: "ack", TypeURL: "x/y.Z", Options: map[string]string{}}},
		{"*", "wait 1m", Command{Verb: "wait", Wait: 60e9, Options: map[string]string{}}},
	} {
		if got := MustParse(c.actor, c.text); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s > %s:\n got %+v\nwant %+v", c.actor, c.text, got, c.want)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	const header = "# A claim.\n# spec: UP-1\n"
	for _, text := range []string{
		"", "# A claim.\n", "# A claim.\n\n# spec: UP-1\n", "# A claim.\n# spec: up1\n", header + "# config: x\n", header + "# show: everything\n", header + "# edge:\n",
		header + "hello\n", header + "c1 >\n", header + "c1 > dance\n", header + "c1 > resp CDS\n", header + "up > sub CDS\n", header + "you > end\n",
		header + "c1 > sub\n", header + "c1 > sub CDS a=b\n", header + "c1 > sub CDS \"a\n", header + "c1 > sub CDS -\n", header + "c1 > open\n",
		header + "c1 > open grpc\n", header + "c1 > ack CDS u1\n", header + "c1 > nack CDS why\n", header + "up > end MAYBE\n", header + "up > end OK bye\n",
		header + "up > resp CDS !x\n", header + "up > resp CDS !x=NO\n", header + "up > resp CDS a[\n", header + "* > wait\n", header + "* > wait long\n",
		header + "* < x\n", header + "you < x\n", header + "c1 < \"x\n", header + "c1 > sub CDS init=a{}\n",
	} {
		if _, err := Parse("t.txt", text); err == nil || !strings.HasPrefix(err.Error(), "t.txt:") {
			t.Errorf("%q: %v", strings.TrimPrefix(text, header), err)
		}
	}
	if _, err := Load("testdata/Not A Claim.txt"); err == nil {
		t.Error("a file that does not exist was loaded")
	}
}

func TestEdgeIsOfTheHeader(t *testing.T) {
	tr := parse(t, "# A claim.\n# spec: UP-1\n# edge: gRPC says \"no\n")
	if tr.Edge != `gRPC says "no` {
		t.Errorf("the reason is %q", tr.Edge)
	}
	if tr = parse(t, "# A claim.\n# spec: UP-1\nc1 > open delta\n# edge: not any more\n"); tr.Edge != "" {
		t.Errorf("a comment further down was read as the reason %q", tr.Edge)
	}
}

func TestMatchesOpenEnds(t *testing.T) {
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{"end INTERNAL", "end INTERNAL", true}, {"end INTERNAL", "end INTERNAL \"x\"", false},
		{"end INTERNAL ...", "end INTERNAL \"x\"", true}, {"end INTERNAL ...", "end INTERNAL", true}, {"end ...", "ending", false},
	} {
		if matches(c.want, c.got) != c.ok {
			t.Errorf("%s against %s: want %v", c.want, c.got, c.ok)
		}
	}
}
