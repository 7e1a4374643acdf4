/** Bytes in an MB: settings and specifications count memory in units of 2^20. */
export const MEBIBYTE = 1024 * 1024;
