package verbs

import "unsafe"

// The structures below have the layout of <infiniband/verbs.h> on 64-bit Linux. testdata/abi.c prints the
// layout of the installed header, and TestABI compares it.

type ibvContext struct {
	_         uintptr // device
	ops       ibvContextOps
	_         int32 // cmd_fd
	asyncFD   int32
	_         int32 // num_comp_vectors
	_         [40]byte
	_         int32
	abiCompat uintptr
}

// ibvContextOps is a table of functions. The functions that libibverbs does not export are called through it.
type ibvContextOps struct {
	_           [7]uintptr
	allocMW     uintptr
	_           uintptr // bind_mw, for windows of type 1
	deallocMW   uintptr
	_           uintptr
	pollCQ      uintptr
	reqNotifyCQ uintptr
	_           [12]uintptr
	postSend    uintptr
	postRecv    uintptr
	_           [5]uintptr
}

type ibvPD struct {
	_ uintptr // context
	_ uint32  // handle
	_ uint32
}

type ibvMR struct {
	_          [4]uintptr // context, pd, addr, length
	_          uint32     // handle
	lkey, rkey uint32
	_          uint32
}

type ibvMW struct {
	context uintptr
	_       uintptr // pd
	rkey    uint32
	_       [2]uint32 // handle, type
	_       uint32
}

type ibvCompChannel struct {
	_  uintptr // context
	fd int32
	_  int32 // refcnt
}

type ibvQP struct {
	_   [6]uintptr // context, qp_context, pd, send_cq, recv_cq, srq
	_   uint32     // handle
	num uint32
	_   [2]uint32 // state, qp_type
	_   [96]byte
}

type ibvQPCap struct{ sendWR, recvWR, sendSGE, recvSGE, inline uint32 }

type ibvQPInitAttr struct {
	qpContext, sendCQ, recvCQ, srq uintptr
	cap                            ibvQPCap
	kind                           uint32
	signalAll                      int32
	_                              uint32
}

type ibvGlobalRoute struct {
	dgid                              [16]byte
	flowLabel                         uint32
	sgidIndex, hopLimit, trafficClass uint8
	_                                 uint8
}

type ibvAHAttr struct {
	grh                                         ibvGlobalRoute
	dlid                                        uint16
	sl, srcPathBits, staticRate, isGlobal, port uint8
	_                                           uint8
}

type ibvQPAttr struct {
	state, curState, pathMTU, pathMigState          uint32
	qkey, rqPSN, sqPSN, destQPN, access             uint32
	cap                                             ibvQPCap
	ah, altAH                                       ibvAHAttr
	pkeyIndex, altPKeyIndex                         uint16
	sqdAsync, sqDraining, maxReads, maxDestReads    uint8
	minRNRTimer, port, timeout, retries, rnrRetries uint8
	altPort, altTimeout                             uint8
	_                                               uint8
	rateLimit                                       uint32
	_                                               uint32
}

type ibvSGE struct {
	addr         uint64
	length, lkey uint32
}

// ibvSendWR has unions. The fields of RDMA writes and of bindings are those that this package uses.
type ibvSendWR struct {
	id            uint64
	next, sgList  uintptr
	sges          int32
	opcode, flags uint32
	imm           uint32 // or invalidate_rkey
	remoteAddr    uint64
	remoteKey     uint32
	_             [28]byte
	mw            uintptr
	mwKey         uint32
	_             uint32
	bindMR        uintptr
	bindAddr      uint64
	bindLength    uint64
	bindAccess    uint32
	_             uint32
}

type ibvRecvWR struct {
	id           uint64
	next, sgList uintptr
	sges         int32
	_            uint32
}

type ibvWC struct {
	id                                 uint64
	status, opcode, vendorErr, byteLen uint32
	imm                                uint32
	_                                  [2]uint32 // qp_num, src_qp
	flags                              uint32
	_                                  [8]byte // pkey_index, slid, sl, dlid_path_bits
}

type ibvPortAttr struct {
	state, maxMTU, activeMTU uint32
	gidTableLen              int32
	capFlags, maxMsgSize     uint32
	badPKeys, qkeyViolations uint32
	pkeyTableLen             uint16
	lid, smLID               uint16
	lmc, maxVL, smSL         uint8
	subnetTimeout, initType  uint8
	activeWidth, activeSpeed uint8
	physState, linkLayer     uint8
	flags                    uint8
	capFlags2                uint16
	_                        uint16
}

type ibvDeviceAttr struct {
	firmware              [64]byte
	nodeGUID, systemGUID  uint64
	maxMRSize             uint64
	pageSizes             uint64
	vendor, part, version uint32
	maxQP, maxQPWR        int32
	capFlags              uint32
	maxSGE, maxSGERead    int32
	maxCQ, maxCQE         int32
	maxMR, maxPD          int32
	maxReads              int32 // max_qp_rd_atom
	_                     [28]byte
	maxMW                 int32
	_                     [47]byte
	ports                 uint8
	_                     [4]byte
}

type ibvGIDEntry struct {
	gid              [16]byte
	index, port      uint32
	kind, netIfIndex uint32
}

// ibvAsyncEvent has the number of a port as its element if the event concerns one.
type ibvAsyncEvent struct {
	element uintptr
	kind    uint32
	_       uint32
}

// layout is compared with the C header by TestABI: sizes, and "size offset" of fields.
func layout() map[string][]uintptr {
	var (
		ctx   ibvContext
		mr    ibvMR
		mw    ibvMW
		ch    ibvCompChannel
		qp    ibvQP
		init  ibvQPInitAttr
		ah    ibvAHAttr
		attr  ibvQPAttr
		send  ibvSendWR
		recv  ibvRecvWR
		wc    ibvWC
		port  ibvPortAttr
		dev   ibvDeviceAttr
		gid   ibvGIDEntry
		sge   ibvSGE
		pd    ibvPD
		route ibvGlobalRoute
		async ibvAsyncEvent
	)
	return map[string][]uintptr{
		"ibv_context":                   {unsafe.Sizeof(ctx)},
		"ibv_context.ops":               {unsafe.Offsetof(ctx.ops), unsafe.Sizeof(ctx.ops)},
		"ibv_context.async_fd":          {unsafe.Offsetof(ctx.asyncFD), 4},
		"ibv_context.abi_compat":        {unsafe.Offsetof(ctx.abiCompat), 8},
		"ibv_context_ops.alloc_mw":      {unsafe.Offsetof(ctx.ops.allocMW), 8},
		"ibv_context_ops.dealloc_mw":    {unsafe.Offsetof(ctx.ops.deallocMW), 8},
		"ibv_context_ops.poll_cq":       {unsafe.Offsetof(ctx.ops.pollCQ), 8},
		"ibv_context_ops.req_notify_cq": {unsafe.Offsetof(ctx.ops.reqNotifyCQ), 8},
		"ibv_context_ops.post_send":     {unsafe.Offsetof(ctx.ops.postSend), 8},
		"ibv_context_ops.post_recv":     {unsafe.Offsetof(ctx.ops.postRecv), 8},

		"ibv_pd":         {unsafe.Sizeof(pd)},
		"ibv_mr":         {unsafe.Sizeof(mr)},
		"ibv_mr.lkey":    {unsafe.Offsetof(mr.lkey), 4},
		"ibv_mr.rkey":    {unsafe.Offsetof(mr.rkey), 4},
		"ibv_mw":         {unsafe.Sizeof(mw)},
		"ibv_mw.context": {unsafe.Offsetof(mw.context), 8},
		"ibv_mw.rkey":    {unsafe.Offsetof(mw.rkey), 4},

		"ibv_comp_channel":    {unsafe.Sizeof(ch)},
		"ibv_comp_channel.fd": {unsafe.Offsetof(ch.fd), 4},

		"ibv_qp":        {unsafe.Sizeof(qp)},
		"ibv_qp.qp_num": {unsafe.Offsetof(qp.num), 4},

		"ibv_qp_init_attr":            {unsafe.Sizeof(init)},
		"ibv_qp_init_attr.send_cq":    {unsafe.Offsetof(init.sendCQ), 8},
		"ibv_qp_init_attr.recv_cq":    {unsafe.Offsetof(init.recvCQ), 8},
		"ibv_qp_init_attr.cap":        {unsafe.Offsetof(init.cap), unsafe.Sizeof(init.cap)},
		"ibv_qp_init_attr.qp_type":    {unsafe.Offsetof(init.kind), 4},
		"ibv_qp_init_attr.sq_sig_all": {unsafe.Offsetof(init.signalAll), 4},

		"ibv_global_route":               {unsafe.Sizeof(route)},
		"ibv_global_route.sgid_index":    {unsafe.Offsetof(route.sgidIndex), 1},
		"ibv_global_route.hop_limit":     {unsafe.Offsetof(route.hopLimit), 1},
		"ibv_global_route.traffic_class": {unsafe.Offsetof(route.trafficClass), 1},
		"ibv_ah_attr":                    {unsafe.Sizeof(ah)},
		"ibv_ah_attr.dlid":               {unsafe.Offsetof(ah.dlid), 2},
		"ibv_ah_attr.sl":                 {unsafe.Offsetof(ah.sl), 1},
		"ibv_ah_attr.is_global":          {unsafe.Offsetof(ah.isGlobal), 1},
		"ibv_ah_attr.port_num":           {unsafe.Offsetof(ah.port), 1},

		"ibv_qp_attr":                    {unsafe.Sizeof(attr)},
		"ibv_qp_attr.path_mtu":           {unsafe.Offsetof(attr.pathMTU), 4},
		"ibv_qp_attr.rq_psn":             {unsafe.Offsetof(attr.rqPSN), 4},
		"ibv_qp_attr.sq_psn":             {unsafe.Offsetof(attr.sqPSN), 4},
		"ibv_qp_attr.dest_qp_num":        {unsafe.Offsetof(attr.destQPN), 4},
		"ibv_qp_attr.qp_access_flags":    {unsafe.Offsetof(attr.access), 4},
		"ibv_qp_attr.ah_attr":            {unsafe.Offsetof(attr.ah), unsafe.Sizeof(attr.ah)},
		"ibv_qp_attr.pkey_index":         {unsafe.Offsetof(attr.pkeyIndex), 2},
		"ibv_qp_attr.max_rd_atomic":      {unsafe.Offsetof(attr.maxReads), 1},
		"ibv_qp_attr.max_dest_rd_atomic": {unsafe.Offsetof(attr.maxDestReads), 1},
		"ibv_qp_attr.min_rnr_timer":      {unsafe.Offsetof(attr.minRNRTimer), 1},
		"ibv_qp_attr.port_num":           {unsafe.Offsetof(attr.port), 1},
		"ibv_qp_attr.timeout":            {unsafe.Offsetof(attr.timeout), 1},
		"ibv_qp_attr.retry_cnt":          {unsafe.Offsetof(attr.retries), 1},
		"ibv_qp_attr.rnr_retry":          {unsafe.Offsetof(attr.rnrRetries), 1},
		"ibv_qp_attr.rate_limit":         {unsafe.Offsetof(attr.rateLimit), 4},

		"ibv_sge":                                       {unsafe.Sizeof(sge)},
		"ibv_sge.lkey":                                  {unsafe.Offsetof(sge.lkey), 4},
		"ibv_send_wr":                                   {unsafe.Sizeof(send)},
		"ibv_send_wr.sg_list":                           {unsafe.Offsetof(send.sgList), 8},
		"ibv_send_wr.num_sge":                           {unsafe.Offsetof(send.sges), 4},
		"ibv_send_wr.opcode":                            {unsafe.Offsetof(send.opcode), 4},
		"ibv_send_wr.send_flags":                        {unsafe.Offsetof(send.flags), 4},
		"ibv_send_wr.imm_data":                          {unsafe.Offsetof(send.imm), 4},
		"ibv_send_wr.invalidate_rkey":                   {unsafe.Offsetof(send.imm), 4},
		"ibv_send_wr.wr.rdma.remote_addr":               {unsafe.Offsetof(send.remoteAddr), 8},
		"ibv_send_wr.wr.rdma.rkey":                      {unsafe.Offsetof(send.remoteKey), 4},
		"ibv_send_wr.bind_mw.mw":                        {unsafe.Offsetof(send.mw), 8},
		"ibv_send_wr.bind_mw.rkey":                      {unsafe.Offsetof(send.mwKey), 4},
		"ibv_send_wr.bind_mw.bind_info.mr":              {unsafe.Offsetof(send.bindMR), 8},
		"ibv_send_wr.bind_mw.bind_info.addr":            {unsafe.Offsetof(send.bindAddr), 8},
		"ibv_send_wr.bind_mw.bind_info.length":          {unsafe.Offsetof(send.bindLength), 8},
		"ibv_send_wr.bind_mw.bind_info.mw_access_flags": {unsafe.Offsetof(send.bindAccess), 4},

		"ibv_recv_wr":         {unsafe.Sizeof(recv)},
		"ibv_recv_wr.sg_list": {unsafe.Offsetof(recv.sgList), 8},
		"ibv_recv_wr.num_sge": {unsafe.Offsetof(recv.sges), 4},

		"ibv_wc":          {unsafe.Sizeof(wc)},
		"ibv_wc.status":   {unsafe.Offsetof(wc.status), 4},
		"ibv_wc.opcode":   {unsafe.Offsetof(wc.opcode), 4},
		"ibv_wc.byte_len": {unsafe.Offsetof(wc.byteLen), 4},
		"ibv_wc.imm_data": {unsafe.Offsetof(wc.imm), 4},
		"ibv_wc.wc_flags": {unsafe.Offsetof(wc.flags), 4},

		"ibv_port_attr":             {unsafe.Sizeof(port)},
		"ibv_port_attr.state":       {unsafe.Offsetof(port.state), 4},
		"ibv_port_attr.active_mtu":  {unsafe.Offsetof(port.activeMTU), 4},
		"ibv_port_attr.gid_tbl_len": {unsafe.Offsetof(port.gidTableLen), 4},
		"ibv_port_attr.lid":         {unsafe.Offsetof(port.lid), 2},
		"ibv_port_attr.link_layer":  {unsafe.Offsetof(port.linkLayer), 1},

		"ibv_device_attr":                  {unsafe.Sizeof(dev)},
		"ibv_device_attr.max_mr_size":      {unsafe.Offsetof(dev.maxMRSize), 8},
		"ibv_device_attr.max_qp_wr":        {unsafe.Offsetof(dev.maxQPWR), 4},
		"ibv_device_attr.device_cap_flags": {unsafe.Offsetof(dev.capFlags), 4},
		"ibv_device_attr.max_cqe":          {unsafe.Offsetof(dev.maxCQE), 4},
		"ibv_device_attr.max_qp_rd_atom":   {unsafe.Offsetof(dev.maxReads), 4},
		"ibv_device_attr.max_mw":           {unsafe.Offsetof(dev.maxMW), 4},
		"ibv_device_attr.phys_port_cnt":    {unsafe.Offsetof(dev.ports), 1},

		"ibv_gid_entry":              {unsafe.Sizeof(gid)},
		"ibv_gid_entry.gid_index":    {unsafe.Offsetof(gid.index), 4},
		"ibv_gid_entry.gid_type":     {unsafe.Offsetof(gid.kind), 4},
		"ibv_gid_entry.ndev_ifindex": {unsafe.Offsetof(gid.netIfIndex), 4},

		"ibv_async_event":            {unsafe.Sizeof(async)},
		"ibv_async_event.element":    {unsafe.Offsetof(async.element), 8},
		"ibv_async_event.event_type": {unsafe.Offsetof(async.kind), 4},
	}
}
