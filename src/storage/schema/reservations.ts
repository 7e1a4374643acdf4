/** Record of `reservations`: the reserved instances of a label of a function version. */
export interface ReservationTable {
  tenant: string;
  name: string;
  version: string;
  label: string;
  /** JSON of `ReservedCluster[]`. */
  clusters: string;
}
