package cache

import (
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestAges: what is from disk keeps its age until it is announced, removed, forgotten or agreed with, and is found by
// its aliases, too (RECON-19).
func TestAges(t *testing.T) {
	var table Table
	old, older := time.Unix(2, 0), time.Unix(1, 0)
	resource := func(name string, aliases ...string) *Resource {
		return NewResource("T", &discovery.Resource{Name: name, Aliases: aliases, Resource: &anypb.Any{TypeUrl: "T"}}, Fingerprint{})
	}
	ages := map[string]time.Time{"a": old, "b": older, "c": old, "d": old}
	for name, asOf := range ages {
		table.Set(resource(name, "of-"+name), "", 1)
		table.Restore(name, asOf)
	}
	table.Restore("nothing", old)
	alias, _ := table.Find("of-b")
	if asOf, unconfirmed := table.AnswerAge(alias); !unconfirmed || !asOf.Equal(older) {
		t.Errorf("an alias of b is unconfirmed: %v, as of %v; want %v", unconfirmed, asOf, older)
	}
	for name, confirm := range map[string]func(ID){
		"a": func(ID) { table.Set(resource("a", "of-a"), "", 2) },
		"b": func(ID) { table.Remove("b", Removed, 2) },
		"c": func(id ID) { table.Forget(id, func(*Resource) bool { return false }) },
		"d": func(id ID) { table.Confirm(id) },
	} {
		asOf, unconfirmed := table.Age(name)
		if !unconfirmed || !asOf.Equal(ages[name]) || !table.AnyUnconfirmed() {
			t.Errorf("%s is unconfirmed: %v, as of %v; want %v", name, unconfirmed, asOf, ages[name])
		}
		id, _ := table.Find(name)
		confirm(id)
		if _, still := table.Age(name); still {
			t.Errorf("%s is still unconfirmed", name)
		}
	}
	if table.AnyUnconfirmed() {
		t.Error("something is still unconfirmed")
	}
}
