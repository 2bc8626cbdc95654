package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// The schema is the struct tags of Config; here is how they are read.

func child(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

// yamlName is the field's name in the file, empty for a field that is not in it.
func yamlName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

func fieldByName(v reflect.Value, name string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if n := yamlName(v.Type().Field(i)); n != "" && n == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// suggest says what could have been meant by an unknown name.
func suggest(name string, typ reflect.Type, key string) string {
	var known []string
	best, bestDistance := "", 3 // further away is not a typing error
	for i := range typ.NumField() {
		n := yamlName(typ.Field(i))
		if n == "" {
			continue
		}
		known = append(known, n)
		if dist := distance(strings.ToLower(name), strings.ToLower(n)); dist < bestDistance && dist < len(n) {
			best, bestDistance = n, dist
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	where := key
	if where == "" {
		where = "the file"
	}
	return "known fields of " + where + ": " + strings.Join(known, ", ")
}

// distance is how many letters must be added, dropped or changed. Names that
// are too long to be a mistyped field are not compared.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := slices.Clone(row)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
		}
		row = next
	}
	return row[len(b)]
}
