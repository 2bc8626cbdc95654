package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Change is a field that two resources do not have alike. Old or New is empty if the field is only in the other one;
// both are JSON.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// String is the change in a line: what is only in the old one with -, only in the new one with +, and else with ~.
func (c Change) String() string {
	switch {
	case c.Old == "":
		return fmt.Sprintf("+ %s: %s", Clean(c.Path), Clean(c.New))
	case c.New == "":
		return fmt.Sprintf("- %s: %s", Clean(c.Path), Clean(c.Old))
	}
	return fmt.Sprintf("~ %s: %s → %s", Clean(c.Path), Clean(c.Old), Clean(c.New))
}

// Differences compares two JSON values field by field, in order of their paths. The elements of lists that are in both
// count as one wherever they stand; of the others those with one name belong together, and then those that stand at one
// place among what is left.
func Differences(before, after json.RawMessage) ([]Change, error) {
	var was, is any
	if err := json.Unmarshal(before, &was); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &is); err != nil {
		return nil, err
	}
	var d differences
	d.compare("", was, is)
	return d, nil
}

type differences []Change

func (d *differences) add(path string, was, is any) {
	*d = append(*d, Change{Path: strings.TrimPrefix(path, "."), Old: text(was), New: text(is)})
}

// text is a value as JSON, or empty for nil.
func text(v any) string {
	if v == nil {
		return ""
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it has been decoded
	return strings.TrimSpace(b.String())
}

func (d *differences) compare(path string, was, is any) {
	switch was := was.(type) {
	case map[string]any:
		if is, ok := is.(map[string]any); ok {
			d.objects(path, was, is)
			return
		}
	case []any:
		if is, ok := is.([]any); ok {
			d.lists(path, was, is)
			return
		}
	}
	if text(was) != text(is) {
		d.add(path, was, is)
	}
}

func (d *differences) objects(path string, was, is map[string]any) {
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d.compare(path+"."+key, was[key], is[key])
	}
}

// element is one of a list, and where it stands there.
type element struct {
	value any
	at    int
}

// named is the name of an element, or empty.
func (e element) named() string {
	fields, _ := e.value.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}

func (e element) path(list string) string {
	if name := e.named(); name != "" {
		return fmt.Sprintf("%s[%q]", list, name)
	}
	return fmt.Sprintf("%s[%d]", list, e.at)
}

func (d *differences) lists(path string, was, is []any) {
	old, now := leftOver(was, is)
	if len(old)+len(now) == 0 && text(was) != text(is) {
		*d = append(*d, Change{Path: strings.TrimPrefix(path, "."), Old: "[these]", New: "[the same, in another order]"})
		return
	}
	old, now = d.pair(path, old, now, func(a, b element) bool { return a.named() != "" && a.named() == b.named() })
	old, now = d.pair(path, old, now, func(a, b element) bool { return a.named() == "" && b.named() == "" })
	for _, e := range old {
		d.add(e.path(path), e.value, nil)
	}
	for _, e := range now {
		d.add(e.path(path), nil, e.value)
	}
}

// leftOver are the elements that only one of two lists has.
func leftOver(was, is []any) (old, now []element) {
	count := make(map[string]int, len(is))
	for _, v := range is {
		count[text(v)]++
	}
	for i, v := range was {
		if key := text(v); count[key] > 0 {
			count[key]--
		} else {
			old = append(old, element{v, i})
		}
	}
	for i, v := range slices.Backward(is) { // of several alike, the last ones are new
		if key := text(v); count[key] > 0 {
			count[key]--
			now = append(now, element{v, i})
		}
	}
	slices.Reverse(now)
	return old, now
}

// pair compares the elements that belong together, and returns the others.
func (d *differences) pair(path string, old, now []element, together func(a, b element) bool) (olds, news []element) {
	for _, a := range old {
		i := slices.IndexFunc(now, func(b element) bool { return together(a, b) })
		if i < 0 {
			olds = append(olds, a)
			continue
		}
		d.compare(now[i].path(path), a.value, now[i].value)
		now = slices.Delete(now, i, i+1)
	}
	return olds, now
}
