// M x N units that keep their sums: each step takes one column of a and one row of b (output stationary).
`timescale 1ns / 1ps
`default_nettype none

module mac_array #(
    parameter M = 4,
    parameter N = 4,
    parameter A_BITS = 8,
    parameter B_BITS = 8,
    parameter P = 18,
    parameter A_SIGNED = 1,
    parameter B_SIGNED = 1,
    parameter SATURATE = 0
) (
    input wire clk,
    input wire clear,
    input wire enable,
    input wire [M*A_BITS-1:0] a_column,  // a[m][k] at bits m * A_BITS
    input wire [N*B_BITS-1:0] b_row,  // b[k][n] at bits n * B_BITS
    output wire [M*N*P-1:0] sums  // unit (m, n) at bits (m * N + n) * P
);
  genvar m, n;
  generate
    for (m = 0; m < M; m = m + 1) begin : rows
      for (n = 0; n < N; n = n + 1) begin : columns
        mac #(A_BITS, B_BITS, P, A_SIGNED, B_SIGNED, SATURATE) unit (
            .clk(clk),
            .clear(clear),
            .enable(enable),
            .a(a_column[m*A_BITS+:A_BITS]),
            .b(b_row[n*B_BITS+:B_BITS]),
            .sum(sums[(m*N+n)*P+:P])
        );
      end
    end
  endgenerate
endmodule

`default_nettype wire
