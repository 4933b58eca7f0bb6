package forward

// ChargeMax is the credit for the longest frame.
const ChargeMax = chargeMax

// UseClasses limits the number of classes, before any neighbor is added.
func (n *Node) UseClasses(classes int) { n.classes = classes }
