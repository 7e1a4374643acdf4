/** Record of `secrets`. */
export interface SecretTable {
  tenant: string;
  name: string;
  /** The id of the key that encrypted the value. */
  key_id: string;
  /** The encrypted value. */
  sealed: Uint8Array;
  created_at_ms: number;
  updated_at_ms: number;
}
