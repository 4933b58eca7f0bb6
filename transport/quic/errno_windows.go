package quic

import "golang.org/x/sys/windows"

const errnoRefused = windows.WSAECONNREFUSED

var errnosDropped = [...]windows.Errno{windows.WSAENOBUFS}

var errnosUnreachable = [...]windows.Errno{
	windows.WSAENETUNREACH, windows.WSAEHOSTUNREACH, windows.WSAENETDOWN, windows.WSAEHOSTDOWN,
	windows.WSAEADDRNOTAVAIL, windows.WSAECONNRESET, windows.WSAEACCES,
}
