package snapshot

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// KeySize is the length of a key file in bytes: AES-256.
const KeySize = 32

// Key seals the records of a snapshot.
type Key struct {
	aead   cipher.AEAD
	secret []byte
}

// ReadKey reads a key file, which holds exactly KeySize bytes, and which not
// everybody on the host may be able to read.
func ReadKey(path string) (*Key, error) {
	if err := CheckKeyFile(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return NewKey(b)
}

// CheckKeyFile reports a key file that too many can read.
func CheckKeyFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return fmt.Errorf("everybody can read or write it (mode %04o); chmod o-rwx", mode)
	}
	return nil
}

// NewKey makes a key of KeySize bytes.
func NewKey(b []byte) (*Key, error) {
	if len(b) != KeySize {
		return nil, fmt.Errorf("a key has %d bytes, this has %d", KeySize, len(b))
	}
	block, err := aes.NewCipher(b)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Key{aead, bytes.Clone(b)}, nil
}

// Derive makes a separate key for a purpose, such as hashes in the snapshot.
func (k *Key) Derive(purpose string) []byte {
	mac := hmac.New(sha256.New, k.secret)
	_, _ = mac.Write([]byte("xds-relay " + purpose)) // it never fails
	return mac.Sum(nil)
}

// seal encrypts a payload, and authenticates its place.
func (k *Key) seal(payload []byte, at place) []byte {
	return k.aead.Seal(nil, nil, payload, at.bytes())
}

func (k *Key) open(sealed []byte, at place) ([]byte, error) {
	p, err := k.aead.Open(nil, nil, sealed, at.bytes())
	if err != nil {
		return nil, errors.New("it does not open with this key")
	}
	return p, nil
}

// place is where a record is. It opens nowhere else, so that nobody without the key can show a record as one
// of another group or lane, or put together a file of several.
type place struct {
	file   string // what binds records to one file
	number uint64 // of the record in it
}

func (p place) bytes() []byte { return binary.BigEndian.AppendUint64([]byte(p.file), p.number) }

// idSize is the length of what follows the first line of a sealed file, and is different in each.
const idSize = 16

// sealedFile is what the records of a file are bound to; id has idSize bytes.
func sealedFile(first, name string, id []byte) string { return first + name + "\n" + string(id) }
