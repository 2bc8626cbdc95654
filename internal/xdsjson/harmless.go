package xdsjson

import "regexp"

// harmless is what protojson and prototext say of a mistake, as far as they quote names alone: a value may be a secret.
// prototext takes what stands behind a value for the name of a field, so it is not quoted there.
var harmless = regexp.MustCompile(`^(unable to resolve|unknown field|duplicate|error parsing|missing|exceeded) .*` +
	`|^(unknown field|mismatched close character|non-repeated field "\w+" is repeated|@type field [a-z ]+)` +
	`|^([\w.]+ )?(value out of range|contains invalid [\w-]+)` +
	`|^(invalid|unexpected) [\w.-]+( value\b)?( for \w+ (field \w+|key|type))?`)

// Harmless is the part of a message of protojson or prototext, without its place, that has no value of the text in it.
func Harmless(message string) string {
	if said := harmless.FindString(message); said != "" {
		return said
	}
	return "cannot be read"
}
