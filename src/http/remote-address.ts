/**
 * Who counts as one remote address: an address of IPv4, and of IPv6 a network of 64 bits, since whoever has one of its addresses has all. Null for
 * loopback: that is the machine itself, or a proxy on it, behind which everybody is.
 */
export function addressGroup(address: string | undefined): string | null {
  if (address === undefined || address === '::1') return null;
  const ipv4 = /^(?:::ffff:)?(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (ipv4 !== undefined) return ipv4.startsWith('127.') ? null : ipv4;
  const [before = '', after] = (address.split('%')[0] as string).split('::');
  const first = before.split(':').filter(Boolean);
  const last = (after ?? '').split(':').filter(Boolean);
  const zeros = Array.from({ length: Math.max(0, 8 - first.length - last.length) }, () => '0');
  return [...first, ...zeros, ...last].slice(0, 4).join(':');
}
