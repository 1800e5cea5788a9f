// What packages of npm take for given, and Node has without being asked since version 20. Debian 12 has version 18.
globalThis.crypto ??= require("node:crypto").webcrypto;
globalThis.File ??= require("node:buffer").File;
