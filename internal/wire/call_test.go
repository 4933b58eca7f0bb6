//race:none it starts no goroutine

package wire

import "testing"

// aCall returns a call with different bytes in its fields, so that a test detects swapped
// fields.
func aCall() Call {
	return Call{
		Comm: 0x0102030405060708, Seq: 0x1112131415161718, Kind: 0x21, Type: 0x22, Op: 0x23,
		Root: 0x31323334, Count: 0x4142434445464748, Plan: 0x51, Channels: 0x6162,
	}
}

// aCallHex is aCall on the wire.
const aCallHex = "0102030405060708 1112131415161718 21 22 23 31323334 4142434445464748 51 6162"

// Calls that differ in any byte are not equal.
func TestCallsAreComparedWhole(t *testing.T) {
	c := aCall()
	for i := range c.append(nil) {
		b := c.append(nil)
		b[i] ^= 1
		d := decoder{b: b}
		if other := d.call(); d.finish() != nil || other == c {
			t.Errorf("byte %d of a call makes no difference", i)
		}
	}
}
