/** The single record of `address_key`, written by the migration that made the table. */
export interface AddressKeyTable {
  singleton: number;
  /** Base64url. */
  key: string;
}
